// The summary of a run, from the files that the tasks leave.
#include "deploy/launcher/summary.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "nlohmann/json.hpp"

namespace weir {
namespace {

using Json = nlohmann::ordered_json;

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
      << R"("bytes_pulled": 60, "residuals_lost": 2, )"
      << R"("phases": {"contributions": 100, "step_seconds": 2, )"
      << R"("data_wait_seconds": 0.1, "pull_wait_seconds": 0.4, )"
      << R"("compute_seconds": 1.2, "push_wait_seconds": 0.2}})"
      << "\n"
      << R"({"step": 60, "lo)";
  std::ofstream(dir + "/eval.jsonl")
      << R"({"checkpoint": "ckpt-50", "step": 50, "accuracy": 0.9})"
      << "\n";
  Json summary;
  ReadCurves(Files::Real(), dir, &summary);
  EXPECT_EQ(summary["steps"], 50u);
  EXPECT_EQ(summary["examples"], 800u);
  EXPECT_EQ(summary["bytes"]["pushed"], 70u);
  EXPECT_EQ(summary["bytes"]["pulled"], 60u);
  EXPECT_EQ(summary["residuals_lost"], 2u);
  EXPECT_DOUBLE_EQ(summary["examples_per_second"], 200);
  EXPECT_DOUBLE_EQ(summary["final_metrics"]["loss"], 0.25);
  EXPECT_DOUBLE_EQ(summary["final_metrics"]["accuracy"], 0.9);
  EXPECT_FALSE(summary["final_metrics"].contains("step"));
  EXPECT_EQ(summary["staleness"]["max"], 4u);
  EXPECT_DOUBLE_EQ(summary["staleness"]["mean"], (10 * 1 + 40 * 2) / 50.0);
  const Json& phases = summary["phases"];
  EXPECT_EQ(phases["contributions"], 100u);
  EXPECT_DOUBLE_EQ(phases["step_ms"], 20.0);
  EXPECT_DOUBLE_EQ(phases["data_wait_ms"], 1.0);
  EXPECT_DOUBLE_EQ(phases["pull_wait_ms"], 4.0);
  EXPECT_DOUBLE_EQ(phases["compute_ms"], 12.0);
  EXPECT_DOUBLE_EQ(phases["push_wait_ms"], 2.0);
  EXPECT_FALSE(phases.contains("gpu_busy_share"));
  EXPECT_EQ(LargestWait(phases), "pull, 20.0% of a step (4.0 ms of 20.0 ms)");
}

// Of a run whose files are in `dir`, by default of one that left none. Its
// worker was started again twice.
Json Summary(const std::string& dir = "/no/such/run") {
  Json summary = {{"status", "done"},
                  {"mode", "sync"},
                  {"wall_seconds", 1.5},
                  {"checkpoint", ""},
                  {"model_sha256", ""}};
  ReadCurves(Files::Real(), dir, &summary);
  LocalTask task;
  task.role = "worker";
  task.restarts = 2;
  task.exit_code = 0;
  summary["tasks"] = TasksJson({task});
  return summary;
}

TEST(SummaryTest, ALossThatIsNotANumberIsNoPerfectOne) {
  const std::string dir = testing::TempDir() + "/diverged";
  std::filesystem::create_directories(dir);
  std::ofstream(dir + "/train.jsonl") << R"({"step": 10, "loss": 2})"
                                      << "\n"
                                      << R"({"step": 20, "loss": null})"
                                      << "\n";
  Json summary = Summary(dir);
  EXPECT_EQ(summary["final_metrics"].dump(), R"({"loss":null})");
  // What the evaluator measured takes the place of the training's.
  std::ofstream(dir + "/train.jsonl") << R"({"step": 20, "loss": 0.5})"
                                      << "\n";
  std::ofstream(dir + "/eval.jsonl")
      << R"({"checkpoint": "ckpt-20", "step": 20, "loss": null})"
      << "\n";
  summary = Summary(dir);
  EXPECT_EQ(summary["final_metrics"].dump(), R"({"loss":null})");
  EXPECT_NE(SummaryTable(summary).find("  loss           nan\n"),
            std::string::npos)
      << SummaryTable(summary);
}

TEST(SummaryTest, ARunThatLeftNoFileStillHasEveryField) {
  const Json summary = Summary();
  for (const char* key :
       {"steps", "examples", "examples_per_second", "residuals_lost"}) {
    EXPECT_EQ(summary[key], 0) << key;
  }
  EXPECT_EQ(summary["staleness"], Json({{"mean", 0.0}, {"max", 0}}));
  EXPECT_EQ(summary["bytes"], Json({{"pushed", 0}, {"pulled", 0}}));
  EXPECT_TRUE(summary["final_metrics"].empty());
  EXPECT_TRUE(summary["phases"].is_null());  // nobody told
  EXPECT_EQ(summary["tasks"][0], Json({{"role", "worker"},
                                       {"index", 0},
                                       {"exit_code", 0},
                                       {"restarts", 2}}));
  const std::string table = SummaryTable(summary);
  EXPECT_EQ(table.find("largest wait"), std::string::npos) << table;
  EXPECT_NE(table.find("  checkpoint     none\n"), std::string::npos) << table;
  EXPECT_NE(table.find("  tasks          1, restarts 2\n"), std::string::npos)
      << table;
}

// Those of ten contributions, of 6.5 ms each, with `more` in the line.
Json Phases(const Json& more = Json::object()) {
  Json sums = {{"contributions", 10},
               {"step_seconds", 0.065},
               {"pull_wait_seconds", 0.008},
               {"compute_seconds", 0.052}};
  sums.update(more);
  return PhasesOf({{"step", 3}, {"phases", sums}});
}

TEST(SummaryTest, PhasesHaveMeansAndShares) {
  Json phases = Phases();
  EXPECT_EQ(phases["contributions"], 10);
  EXPECT_DOUBLE_EQ(phases["step_ms"], 6.5);
  EXPECT_DOUBLE_EQ(phases["compute_ms"], 5.2);
  EXPECT_DOUBLE_EQ(phases["compute_share"], 0.8);
  EXPECT_DOUBLE_EQ(phases["pull_wait_share"], 0.8 / 6.5);
  EXPECT_DOUBLE_EQ(phases["data_wait_share"], 0.0);
  EXPECT_DOUBLE_EQ(phases["push_wait_share"], 0.0);
  EXPECT_FALSE(phases.contains("gpu_busy_share"));
  EXPECT_FALSE(phases.contains("nvml_watts"));
  phases = Phases(
      {{"gpu_busy_share", 0.9}, {"nvml_watts", 400}, {"nvml_gpu_percent", 0}});
  EXPECT_DOUBLE_EQ(phases["gpu_busy_share"], 0.9);
  EXPECT_DOUBLE_EQ(phases["nvml_watts"], 400);
  EXPECT_FALSE(phases.contains("nvml_gpu_percent"));
  EXPECT_EQ(phases["device_bytes_used"], 0);
  EXPECT_TRUE(PhasesOf({{"step", 3}}).is_null());
  EXPECT_TRUE(PhasesOf({{"phases", {{"contributions", 0}}}}).is_null());
}

TEST(SummaryTest, TheTableNamesTheLargestWait) {
  Json summary = Summary();
  summary["phases"] = Phases();
  EXPECT_NE(SummaryTable(summary).find(
                "  largest wait   pull, 12.3% of a step (0.8 ms of 6.5 ms)\n"),
            std::string::npos)
      << SummaryTable(summary);
  EXPECT_EQ(SummaryTable(summary).find("gpu busy"), std::string::npos);
  EXPECT_EQ(LargestWait(Phases({{"push_wait_seconds", 0.013}})),
            "push, 20.0% of a step (1.3 ms of 6.5 ms)");
  EXPECT_EQ(LargestWait(Phases(
                {{"data_wait_seconds", 1.23456}, {"step_seconds", 12.3456}})),
            "data, 10.0% of a step (123 ms of 1235 ms)");
}

TEST(SummaryTest, AWaitUnderOnePercentIsNotNamed) {
  EXPECT_EQ(LargestWait(Phases({{"pull_wait_seconds", 0.0006}})),
            "none over 1% of a step");
  EXPECT_EQ(LargestWait(Phases({{"step_seconds", 0}})),
            "none over 1% of a step");
}

TEST(SummaryTest, AGpuHasARow) {
  const Json used = {{"gpu_busy_share", 0.93},
                     {"device_bytes_used", 1288490189}};  // 1.2 GiB
  Json summary = Summary();
  summary["phases"] = Phases(used);
  EXPECT_NE(SummaryTable(summary).find(
                "  gpu busy       93% of a step, 1.2 GiB used\n"),
            std::string::npos)
      << SummaryTable(summary);
  Json of_total = used;
  of_total["device_bytes_total"] = uint64_t{140} << 30;
  EXPECT_EQ(GpuUse(Phases(of_total)), "93% of a step, 1.2 of 140 GiB used");
}

}  // namespace
}  // namespace weir
