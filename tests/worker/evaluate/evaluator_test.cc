// Tests when the evaluator evaluates, with a stand-in for the evaluation.
#include "worker/evaluate/evaluator.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "nlohmann/json.hpp"
#include "proto/checkpoint/checkpoint_files.h"

namespace weir {
namespace {

class RunDirectory {
 public:
  explicit RunDirectory(const std::string& name)
      : dir_(testing::TempDir() + "/evaluator_" + name) {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_ + "/checkpoints");
  }

  const std::string& dir() const { return dir_; }
  void Commit(uint64_t step) {
    const std::string path = dir_ + "/checkpoints/" + CheckpointName(step);
    std::filesystem::create_directories(path);
    Manifest manifest;
    manifest.set_format(kManifestFormat);
    manifest.set_name(CheckpointName(step));
    manifest.set_step(step);
    ASSERT_TRUE(WriteManifest(Files::Real(), path, manifest).ok());
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ + "/" + name) << text;
  }
  std::vector<std::string> Lines() {
    std::ifstream stream(dir_ + "/eval.jsonl");
    std::vector<std::string> names;
    for (std::string line; std::getline(stream, line);) {
      names.push_back(nlohmann::json::parse(line)["checkpoint"]);
    }
    return names;
  }
  Evaluator Make() {
    return Evaluator(
        Files::Real(), Clock::Real(), dir_,
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
  const std::string dir_;
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

TEST(EvaluatorTest, AStartedAgainOneRepeatsNoLine) {
  RunDirectory run("again");
  run.Commit(5);
  ASSERT_TRUE(run.Make().Poll().ok());
  ASSERT_TRUE(run.Make().Poll().ok());
  EXPECT_EQ(run.Lines(), std::vector<std::string>{"ckpt-5"});
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

}  // namespace
}  // namespace weir
