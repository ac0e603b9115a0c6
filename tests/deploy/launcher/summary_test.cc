// What the end of a run says, from the files that the tasks leave.
#include "deploy/launcher/summary.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "nlohmann/json.hpp"

namespace weir {
namespace {

TEST(SummaryTest, TakesTheLastLinesAndSkipsATornOne) {
  const std::string dir = testing::TempDir() + "/summary";
  std::filesystem::create_directories(dir);
  std::ofstream(dir + "/train.jsonl")
      << R"({"step": 10, "loss": 2, "staleness_mean": 1, "staleness_max": 2})"
      << "\n"
      << R"({"step": 40, "loss": 0.5, "staleness_mean": 3, "staleness_max": 5,
)"
      << R"("seconds": 2})"
      << "\n";
  std::ofstream(dir + "/train.jsonl", std::ios::app)
      << R"({"step": 50, "loss": 0.25, "staleness_mean": 2, "staleness_max": 4, )"
      << R"("examples": 800, "seconds": 4, "bytes_pushed": 70, )"
      << R"("bytes_pulled": 60, "residuals_lost": 2})"
      << "\n"
      << R"({"step": 60, "lo)";
  std::ofstream(dir + "/eval.jsonl")
      << R"({"checkpoint": "ckpt-50", "step": 50, "accuracy": 0.9})"
      << "\n";
  RunSummary summary;
  ReadCurves(Files::Real(), dir, &summary);
  EXPECT_EQ(summary.steps, 50u);
  EXPECT_EQ(summary.examples, 800u);
  EXPECT_EQ(summary.bytes_pushed, 70u);
  EXPECT_EQ(summary.bytes_pulled, 60u);
  EXPECT_EQ(summary.residuals_lost, 2u);
  EXPECT_DOUBLE_EQ(summary.examples_per_second, 200);
  EXPECT_DOUBLE_EQ(summary.final_metrics["loss"], 0.25);
  EXPECT_DOUBLE_EQ(summary.final_metrics["accuracy"], 0.9);
  EXPECT_EQ(summary.final_metrics.count("step"), 0u);
  EXPECT_EQ(summary.staleness_max, 4u);
  EXPECT_DOUBLE_EQ(summary.staleness_mean, (10 * 1 + 40 * 2) / 50.0);
}

TEST(SummaryTest, JsonHasEveryFieldOfTheContract) {
  RunSummary summary;
  summary.status = "done";
  LocalTask task;
  task.role = "worker";
  task.restarts = 2;
  task.exit_code = 0;
  summary.tasks = {task};
  const auto json = nlohmann::json::parse(SummaryJson(summary));
  for (const char* key :
       {"status", "steps", "examples", "wall_seconds", "examples_per_second",
        "mode", "final_metrics", "staleness", "bytes", "residuals_lost",
        "checkpoint", "model_sha256", "tasks"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["tasks"][0]["restarts"], 2);
  EXPECT_TRUE(json["staleness"].contains("mean"));
  EXPECT_TRUE(json["staleness"].contains("max"));
}

}  // namespace
}  // namespace weir
