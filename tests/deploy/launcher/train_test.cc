// The decisions of `weir train` before a task runs. Whole jobs are trained by
// tests/integration/loop_test.cc.
#include "deploy/launcher/train.h"

#include <filesystem>
#include <string>
#include <vector>

#include "common/io/files.h"
#include "deploy/launcher/workdir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// A job file, a directory for its run, and no programs that could run it.
TrainOptions MakeOptions() {
  TrainOptions options;
  const std::string dir = MakeTempDir();
  options.bin_dir = dir + "/no_bin";
  options.job_path = dir + "/j.textproto";
  options.workdir = dir + "/run";
  const std::string text =
      "name: 'j' model { layer { name: 'o' dense { units: 2 } } "
      "loss { mean_squared_error {} } } data { train { digits { count: 9 } } } "
      "train { batch_size: 3 steps: 3 } optimizer { sgd {} } "
      "schedule { learning_rate: 0.1 }";
  EXPECT_TRUE(Files::Real()->WriteAtomically(options.job_path, text).ok());
  return options;
}

TEST(TrainTest, AWrongJobMakesNoDirectory) {
  TrainOptions options = MakeOptions();
  options.sets = {"train.batch_size=0"};
  const auto wrong = RunTraining(options);
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(wrong.status().message()),
              HasSubstr("train.batch_size"));
  options.job_path += ".absent";
  EXPECT_FALSE(RunTraining(options).ok());
  EXPECT_FALSE(std::filesystem::exists(options.workdir));
}

TEST(TrainTest, EveryTaskIsToReadOneJobFileWithTheOverrides) {
  TrainOptions options = MakeOptions();
  options.sets = {"train.steps=77"};
  const auto code = RunTraining(options);
  EXPECT_EQ(code.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(code.status().message()),
              HasSubstr("/no_bin/server/ps/weir_ps is not there"));
  EXPECT_THAT(*Files::Real()->ReadAll(options.workdir + "/job.textproto"),
              HasSubstr("steps: 77"));
}

TEST(TrainTest, DoesNotWriteOverAnEarlierRun) {
  const TrainOptions options = MakeOptions();
  ASSERT_TRUE(Files::Real()->MakeDirectories(options.workdir).ok());
  ASSERT_TRUE(Files::Real()
                  ->WriteAtomically(options.workdir + "/train.jsonl", "")
                  .ok());
  const auto code = RunTraining(options);
  EXPECT_EQ(code.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(code.status().message()),
              HasSubstr("holds an earlier run (train.jsonl)"));
  EXPECT_FALSE(std::filesystem::exists(options.workdir + "/job.textproto"));
}

TEST(TrainTest, LeavesTheFilesOfARunThatGoesOnAsTheyAre) {
  TrainOptions options = MakeOptions();
  const auto other = PrepareWorkdir({.workdir = options.workdir, .name = "j"});
  ASSERT_TRUE(other.ok()) << other.status();
  const std::vector<std::string> names = {"job.textproto", ".secret",
                                          "cluster.json"};
  for (const std::string& name : names) {
    ASSERT_TRUE(Files::Real()
                    ->WriteAtomically(options.workdir + "/" + name, "other")
                    .ok());
  }
  for (const bool resume : {false, true}) {
    options.resume = resume;
    const auto code = RunTraining(options);
    EXPECT_EQ(code.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(code.status().message()),
                HasSubstr("is in use by another launcher"));
    for (const std::string& name : names) {
      EXPECT_EQ(*Files::Real()->ReadAll(options.workdir + "/" + name), "other")
          << name;
    }
  }
}

TEST(TrainTest, ResumesOnlyARunThatIsThere) {
  TrainOptions options = MakeOptions();
  options.resume = true;
  const auto code = RunTraining(options);
  EXPECT_EQ(code.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(code.status().message()),
              HasSubstr("there is no run in " + options.workdir));
  EXPECT_FALSE(std::filesystem::exists(options.workdir));
}

// As after a launcher that was killed: there is no summary.json.
TEST(TrainTest, ResumesWithAsManyTasksAsTheRunWasStartedWith) {
  TrainOptions options = MakeOptions();
  options.resume = true;
  ASSERT_TRUE(Files::Real()->MakeDirectories(options.workdir).ok());
  const std::string cluster = options.workdir + "/cluster.json";
  const auto resume = [&](const std::string& kept) {
    EXPECT_TRUE(Files::Real()
                    ->WriteAtomically(options.workdir + "/job.textproto", "")
                    .ok());
    EXPECT_TRUE(Files::Real()->WriteAtomically(cluster, kept).ok());
    testing::internal::CaptureStdout();
    EXPECT_EQ(RunTraining(options).status().code(),
              absl::StatusCode::kNotFound);
    return testing::internal::GetCapturedStdout();
  };
  const std::string kept =
      R"({"cluster": {"ps": ["a:1", "a:2"], "worker": ["a:3", "a:4", "a:5"],)"
      R"( "chief": ["a:6"]}})";
  EXPECT_THAT(resume(kept),
              HasSubstr("resuming with --ps 2 --workers 3 --chief\n"));
  const auto counts = KeptTaskCounts(options.workdir);
  EXPECT_THAT(counts,
              ElementsAre(Pair("chief", 1), Pair("ps", 2), Pair("worker", 3)));
  options.worker_count = 1;
  EXPECT_THAT(resume(kept), HasSubstr("--ps 2 --workers 1 --chief\n"));
  options.worker_count = 0;
  EXPECT_THAT(resume("{"), HasSubstr("resuming with --ps 1 --workers 1; noth"));
  options.ps_count = options.worker_count = 1;
  EXPECT_THAT(resume("{"), HasSubstr("resuming with --ps 1 --workers 1\n"));
}

}  // namespace
}  // namespace weir
