// The decisions of `weir train` before a task runs. Whole jobs are trained by
// tests/integration/loop_test.cc.
#include "deploy/launcher/train.h"

#include <filesystem>
#include <string>

#include "common/io/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using testing::HasSubstr;

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

TEST(TrainTest, ResumesOnlyARunThatIsThere) {
  TrainOptions options = MakeOptions();
  options.resume = true;
  const auto code = RunTraining(options);
  EXPECT_EQ(code.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(code.status().message()),
              HasSubstr("there is no run in " + options.workdir));
  EXPECT_FALSE(std::filesystem::exists(options.workdir));
}

}  // namespace
}  // namespace weir
