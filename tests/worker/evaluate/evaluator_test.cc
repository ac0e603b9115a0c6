// Tests when the evaluator evaluates, with a stand-in for the evaluation.
#include "worker/evaluate/evaluator.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "nlohmann/json.hpp"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/checkpoint/evaluated.h"
#include "proto/job/job_spec_text.h"
#include "tests/support/fake_s3_store.h"
#include "tests/support/faulty_files.h"

namespace weir {
namespace {

class RunDirectory {
 public:
  explicit RunDirectory(const std::string& name)
      : RunDirectory(Files::Real(), testing::TempDir() + "/evaluator_" + name) {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_ + "/checkpoints");
  }
  RunDirectory(ObjectStore* store, const std::string& dir)
      : store_(store), dir_(dir) {}

  const std::string& dir() const { return dir_; }
  void SetSteps(uint64_t steps) { spec_.mutable_train()->set_steps(steps); }
  void Commit(uint64_t step) {
    const std::string path = dir_ + "/checkpoints/" + CheckpointName(step);
    ASSERT_TRUE(store_->MakeDirectories(path).ok());
    Manifest manifest;
    manifest.set_format(kManifestFormat);
    manifest.set_name(CheckpointName(step));
    manifest.set_step(step);
    manifest.set_job_spec_text(CanonicalJobSpecText(spec_));
    ASSERT_TRUE(WriteManifest(store_, path, manifest).ok());
  }
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(store_->WriteAtomically(dir_ + "/" + name, text).ok());
  }
  std::vector<std::string> Lines() {
    std::ifstream stream(dir_ + "/eval.jsonl");
    std::vector<std::string> names;
    for (std::string line; std::getline(stream, line);) {
      names.push_back(nlohmann::json::parse(line)["checkpoint"]);
    }
    return names;
  }
  Evaluator Make(Clock* clock = Clock::Real()) {
    return Evaluator(
        store_, clock, dir_, spec_.train(),
        [this](const std::string& path) -> absl::StatusOr<EvaluationResult> {
          if (!status_.ok()) {
            return status_;
          }
          EvaluationResult result;
          result.checkpoint = std::filesystem::path(path).filename();
          result.metrics["loss"] = 0.5;
          return result;
        });
  }
  void FailWith(absl::Status status) { status_ = std::move(status); }

 private:
  ObjectStore* const store_;
  const std::string dir_;
  JobSpec spec_;
  absl::Status status_;
};

TEST(EvaluatorTest, EvaluatesTheNewestOnceAndEndsAtDone) {
  RunDirectory run("newest");
  Evaluator evaluator = run.Make();
  EXPECT_EQ(evaluator.Poll().value(), false);
  run.Commit(9);
  run.Commit(10);
  EXPECT_EQ(evaluator.Poll().value(), false);
  EXPECT_EQ(evaluator.Poll().value(), false);
  run.Commit(20);
  run.Write("DONE", "ckpt-20\n");
  EXPECT_EQ(evaluator.Poll().value(), true);
  EXPECT_EQ(run.Lines(), (std::vector<std::string>{"ckpt-10", "ckpt-20"}));
}

// Nobody starts it again, so a loss of power must not take DONE back.
TEST(EvaluatorTest, DoneIsDurableBeforeItEnds) {
  FaultyFiles files(Files::Real());
  RunDirectory made("durable");
  RunDirectory run(&files, made.dir());
  run.Commit(9);
  run.Write("DONE", "ckpt-9\n");
  std::string last;
  files.Watch([&](const std::string& call) { last = call; });
  Evaluator evaluator = run.Make();
  EXPECT_EQ(evaluator.Poll().value(), true);
  EXPECT_EQ(last, "fsync directory " + run.dir());
}

TEST(EvaluatorTest, AStartedAgainOneRepeatsNoLine) {
  RunDirectory run("again");
  run.Commit(5);
  ASSERT_TRUE(run.Make().Poll().ok());
  ASSERT_TRUE(run.Make().Poll().ok());
  EXPECT_EQ(run.Lines(), std::vector<std::string>{"ckpt-5"});
}

// Its chief removes DONE only when training begins, which the evaluator may be
// faster than.
TEST(EvaluatorTest, DoneOfAShorterJobIsNoEnd) {
  RunDirectory run("longer");
  run.SetSteps(5);
  run.Commit(5);
  run.Write("DONE", "ckpt-5\n");
  EXPECT_EQ(run.Make().Poll().value(), true);
  EXPECT_EQ(run.Make().Poll().value(), true);  // started again after the end
  run.SetSteps(9);
  Evaluator evaluator = run.Make();
  EXPECT_EQ(evaluator.Poll().value(), false);
  run.Commit(9);
  run.Write("DONE", "ckpt-9\n");
  EXPECT_EQ(evaluator.Poll().value(), true);
  EXPECT_EQ(run.Lines(), (std::vector<std::string>{"ckpt-5", "ckpt-9"}));
}

TEST(EvaluatorTest, ALineThatWasCutStaysApartFromTheNext) {
  RunDirectory run("cut");
  run.Commit(5);
  run.Write("eval.jsonl", "{\"checkpoint\": \"ckpt-5");
  ASSERT_TRUE(run.Make().Poll().ok());
  run.Commit(6);
  ASSERT_TRUE(run.Make().Poll().ok());
  std::ifstream stream(run.dir() + "/eval.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(stream, line));
  EXPECT_EQ(line, "{\"checkpoint\": \"ckpt-5");
  for (const char* name : {"ckpt-5", "ckpt-6"}) {
    ASSERT_TRUE(std::getline(stream, line));
    EXPECT_EQ(nlohmann::json::parse(line)["checkpoint"], name);
  }
}

TEST(EvaluatorTest, ADamagedCheckpointIsReportedOnceAndLeftAlone) {
  RunDirectory run("damaged");
  run.Commit(5);
  run.FailWith(absl::DataLossError("ckpt-5/shard-0 is cut short"));
  Evaluator evaluator = run.Make();
  EXPECT_EQ(evaluator.Poll().status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(evaluator.Poll().value(), false);
  EXPECT_TRUE(run.Lines().empty());
}

// Whoever reads 0 counts on the line of the last checkpoint.
TEST(EvaluatorTest, EndsWithTheReasonWhyTheLastCheckpointHasNoLine) {
  RunDirectory run("no_line");
  FakeClock clock;
  const auto stopped = [] { return false; };
  run.Commit(5);
  run.Write("DONE", "ckpt-5\n");
  for (const auto& status : {absl::DataLossError("ckpt-5 is cut short"),
                             absl::ResourceExhaustedError("no memory")}) {
    run.FailWith(status);
    EXPECT_EQ(run.Make(&clock).Follow(stopped), status);
  }
  EXPECT_TRUE(run.Lines().empty());
  // RESOURCE_EXHAUSTED passes, so somebody starts it again.
  run.FailWith(absl::OkStatus());
  EXPECT_TRUE(run.Make(&clock).Follow(stopped).ok());
  EXPECT_EQ(run.Lines(), std::vector<std::string>{"ckpt-5"});
}

TEST(EvaluatorTest, HearsThatTheRunEndedButNotOfAnEarlierLife) {
  RunDirectory run("ended");
  const absl::Status lost = absl::UnavailableError("ps 1 is lost");
  ASSERT_TRUE(WriteEnding(Files::Real(), run.dir(), lost).ok());
  Evaluator evaluator = run.Make();
  EXPECT_TRUE(evaluator.Ended().ok());
  ASSERT_TRUE(WriteEnding(Files::Real(), run.dir(), absl::OkStatus()).ok());
  EXPECT_TRUE(evaluator.Ended().ok());
  ASSERT_TRUE(WriteEnding(Files::Real(), run.dir(), lost).ok());
  EXPECT_EQ(evaluator.Ended(), lost);
  run.Write("ENDED", "{");
  EXPECT_TRUE(evaluator.Ended().ok());
}

TEST(EvaluatorTest, ACheckpointDeletedUnderItIsNoError) {
  RunDirectory run("deleted");
  run.Commit(5);
  run.FailWith(absl::NotFoundError("gone"));
  Evaluator evaluator = run.Make();
  std::filesystem::remove(run.dir() + "/checkpoints/ckpt-5/manifest.json");
  EXPECT_EQ(evaluator.Poll().value(), false);
}

TEST(EvaluatorTest, AStoreThatDoesNotAnswerIsAskedAgain) {
  RunDirectory run("unavailable");
  run.Commit(5);
  run.FailWith(absl::UnavailableError("503 SlowDown"));
  Evaluator evaluator = run.Make();
  EXPECT_TRUE(absl::IsUnavailable(evaluator.Poll().status()));
  run.FailWith(absl::OkStatus());
  EXPECT_EQ(evaluator.Poll().value(), false);
  EXPECT_EQ(run.Lines(), std::vector<std::string>{"ckpt-5"});
}

TEST(EvaluatorTest, ListsLessOftenWhereEachLookIsPaidFor) {
  FakeS3Store fake;
  int lists = 0;
  fake.s3()->SetFaults([&lists](const HttpRequest& request) {
    for (const auto& [name, value] : request.query) {
      lists += name == "list-type" ? 1 : 0;
    }
    return FakeS3::Fault::kNone;
  });
  FakeClock clock;
  RunDirectory run(fake.store(), "s3://bucket/run");
  Evaluator evaluator = run.Make(&clock);
  lists = 0;
  std::vector<int> when;  // seconds at which checkpoints were listed
  const auto run_until = [&](int end) {
    static int now = 0;
    for (; now < end; ++now) {
      const int before = lists;
      ASSERT_EQ(evaluator.Poll().value(), false);
      if (lists > before) {
        when.push_back(now);
      }
      ASSERT_EQ(evaluator.pause(), std::chrono::seconds(1));
      clock.Advance(std::chrono::seconds(1));
    }
  };
  run_until(100);
  EXPECT_EQ(when, (std::vector<int>{0, 1, 3, 7, 15, 31, 61, 91}));
  run.Commit(5);
  run_until(130);
  when.clear();
  run_until(140);
  EXPECT_FALSE(when.empty());  // 121, 122, 124, 128, 136
  // The end does not wait for the next look.
  run.Commit(6);
  run.Write("DONE", "ckpt-6\n");
  EXPECT_EQ(evaluator.Poll().value(), true);

  RunDirectory directory("pause");
  EXPECT_EQ(directory.Make().pause(), std::chrono::milliseconds(200));
}

// Each line would take longer than the one before, and whoever looks for one as
// well.
TEST(EvaluatorTest, LinesInAnObjectStoreAreOnePartThatNobodyReads) {
  FakeS3Store fake;
  RunDirectory run(fake.store(), "s3://bucket/run");
  FakeClock clock;
  Evaluator evaluator = run.Make(&clock);
  int reads = 0;
  fake.s3()->SetFaults([&](const HttpRequest& request) {
    if (request.method == "GET" &&
        request.path.find("eval.jsonl") != std::string::npos) {
      ++reads;
    }
    return FakeS3::Fault::kNone;
  });
  for (uint64_t step = 1; step <= 5; ++step) {
    run.Commit(step);
    clock.Advance(std::chrono::seconds(30));
    ASSERT_EQ(evaluator.Poll().value(), false);
  }
  EXPECT_EQ(reads, 0);
  EXPECT_EQ(EvaluatedCheckpoints(fake.store(), run.dir()).size(), 5u);
  EXPECT_EQ(reads, 1);
}

}  // namespace
}  // namespace weir
