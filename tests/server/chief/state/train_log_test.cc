#include "server/chief/state/train_log.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weir {
namespace {

using testing::SizeIs;

constexpr int64_t kSecond = 1'000'000'000;

ContributionReport Contribution(uint64_t contribution, float loss,
                                float weight = 1.0f) {
  ContributionReport report;
  report.set_contribution(contribution);
  report.set_loss(loss);
  report.set_weight(weight);
  report.set_rows(10);
  return report;
}

Progress Staleness(uint64_t sum, uint64_t count, uint64_t max) {
  Progress progress;
  progress.set_staleness_sum(sum);
  progress.set_staleness_count(count);
  progress.set_staleness_max(max);
  return progress;
}

TrainLog::Options Options(uint32_t per_step, uint32_t every) {
  TrainLog::Options options;
  options.contributions_per_step = per_step;
  options.every_steps = every;
  options.learning_rate = [](uint64_t t) {
    return 0.5 + static_cast<double>(t);
  };
  return options;
}

TEST(TrainLogTest, AsyncAveragesTheWindow) {
  TrainLog log(Options(0, 4));
  log.AddCounts(Staleness(6, 4, 3));
  for (int i = 0; i < 4; ++i) {
    log.AddContribution(
        Contribution(0, static_cast<float>(i), i == 3 ? 3.0f : 1.0f),
        i * kSecond);
  }
  log.AddContribution(Contribution(0, 9.0f), 5 * kSecond);
  const auto lines = log.Advance(5, 5 * kSecond);
  ASSERT_THAT(lines, SizeIs(1));
  const auto json = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(json["step"], 4);
  EXPECT_DOUBLE_EQ(json["loss"], (0 + 1 + 2 + 3 * 3.0) / 6);
  EXPECT_DOUBLE_EQ(json["learning_rate"], 3.5);
  EXPECT_NEAR(json["examples_per_second"].get<double>(), 40.0 / 3, 1e-6);
  EXPECT_EQ(json["examples"], 40);
  EXPECT_DOUBLE_EQ(json["seconds"], 3.0);
  EXPECT_EQ(json["staleness_max"], 3);
  EXPECT_DOUBLE_EQ(json["staleness_mean"], 1.5);
  EXPECT_THAT(log.End(5, 6 * kSecond), SizeIs(1));
}

// Returns the lines up to `step_done`, however many reports are missing: the
// log waits for those twice, if it was told of fewer steps before.
std::vector<std::string> Settle(TrainLog* log, uint64_t step_done) {
  std::vector<std::string> lines;
  for (int64_t now = 0; now < 3; ++now) {
    for (const std::string& line :
         log->Advance(step_done, 10 * now * kSecond)) {
      lines.push_back(line);
    }
  }
  return lines;
}

TEST(TrainLogTest, ReportsOfStepsThatAreFarAheadAreNotKept) {  // I3
  const uint64_t reach = 2 * kReportsAheadMax;
  TrainLog log(Options(1, 1));
  log.AddContribution(Contribution(reach - 1, 1.0f), 0);
  log.AddContribution(Contribution(reach, 2.0f), 0);
  log.AddContribution(Contribution(uint64_t{1} << 62, 3.0f), 0);
  const auto lines = Settle(&log, reach + 1);
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(nlohmann::json::parse(lines[0])["step"], reach);
}

TEST(TrainLogTest, TheReachMovesWithTheStepsThatAreDone) {  // I3
  const uint64_t done = 5 * kReportsAheadMax;
  TrainLog log(Options(1, 1));
  log.Advance(done, 0);  // its reports are on their way
  log.AddContribution(Contribution(done - kReportsAheadMax - 1, 1.0f), 0);
  log.AddContribution(Contribution(done - kReportsAheadMax, 1.0f), 0);
  log.AddContribution(Contribution(done + kReportsAheadMax - 1, 1.0f), 0);
  log.AddContribution(Contribution(done + kReportsAheadMax, 1.0f), 0);
  EXPECT_THAT(Settle(&log, done + 2 * kReportsAheadMax), SizeIs(2));
}

TEST(TrainLogTest, LargeStepsAreKeptWhole) {  // I3
  const auto per_step = static_cast<uint32_t>(2 * kReportsAheadMax);
  TrainLog log(Options(per_step, 1));
  const uint64_t reach = 2 * kReportStepsMin * per_step;
  log.AddContribution(Contribution(reach - 1, 1.0f), 0);
  log.AddContribution(Contribution(reach, 1.0f), 0);
  EXPECT_THAT(Settle(&log, 2 * kReportStepsMin + 1), SizeIs(1));
}

TEST(TrainLogTest, BytesAndLostResidualsAddUp) {
  TrainLog log(Options(0, 1));
  Progress progress;
  progress.set_bytes_pushed(100);
  progress.set_bytes_pulled(40);
  progress.set_residuals_lost(true);
  log.AddCounts(progress);
  log.AddCounts(progress);
  log.AddContribution(Contribution(0, 1.0f), kSecond);
  const auto lines = log.Advance(1, kSecond);
  ASSERT_THAT(lines, SizeIs(1));
  const auto json = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(json["bytes_pushed"], 200);
  EXPECT_EQ(json["bytes_pulled"], 80);
  EXPECT_EQ(json["residuals_lost"], 2);
}

TEST(TrainLogTest, ALineHasThePhasesSoFar) {
  TrainLog log(Options(0, 1));
  log.AddContribution(Contribution(0, 1.0f), kSecond);
  Progress progress;
  progress.mutable_phases()->set_contributions(3);
  progress.mutable_phases()->set_step_ns(6 * kSecond);
  log.AddCounts(progress);
  log.AddContribution(Contribution(1, 1.0f), kSecond);
  log.AddCounts(progress);
  log.AddContribution(Contribution(2, 1.0f), kSecond);
  const auto lines = log.Advance(3, kSecond);
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_FALSE(nlohmann::json::parse(lines[0]).contains("phases"));
  EXPECT_EQ(nlohmann::json::parse(lines[1])["phases"]["contributions"], 3);
  const auto last = nlohmann::json::parse(lines[2]);
  EXPECT_EQ(last["phases"]["contributions"], 6);
  EXPECT_DOUBLE_EQ(last["phases"]["step_seconds"], 12.0);
  EXPECT_EQ(last["residuals_lost"], 0);
}

TEST(TrainLogTest, BurstsHaveSpeedAndStalenessOnEveryLine) {
  TrainLog log(Options(0, 2));
  std::vector<std::string> lines;
  for (int burst = 1; burst <= 4; ++burst) {
    log.AddCounts(Staleness(8, 4, 5));
    for (int i = 0; i < 50; ++i) {
      log.AddContribution(Contribution(0, 1.0f), burst * kSecond / 2);
    }
    for (const std::string& line : log.Advance(0, burst * kSecond / 2)) {
      lines.push_back(line);
    }
  }
  ASSERT_THAT(lines, SizeIs(100));
  for (size_t i = 50; i < lines.size(); ++i) {
    const auto json = nlohmann::json::parse(lines[i]);
    EXPECT_NEAR(json["examples_per_second"].get<double>(), 1000, 500);
    EXPECT_DOUBLE_EQ(json["staleness_mean"], 2.0);
    EXPECT_EQ(json["staleness_max"], 5);
  }
}

TEST(TrainLogTest, SyncMeansAreTheSameInAnyOrder) {
  const auto run = [](const std::vector<uint64_t>& order) {
    TrainLog log(Options(3, 1));
    for (const uint64_t c : order) {
      log.AddContribution(Contribution(c, 0.1f * static_cast<float>(c + 1),
                                       static_cast<float>(c % 3 + 1)),
                          0);
    }
    return log.Advance(2, 0);
  };
  const auto lines = run({0, 1, 2, 3, 4, 5});
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines, run({5, 2, 4, 0, 3, 1}));
  EXPECT_EQ(lines, run({0, 0, 1, 2, 3, 1, 4, 5, 5}));  // repeats
  EXPECT_NEAR(nlohmann::json::parse(lines[0])["loss"].get<double>(),
              (0.1 + 2 * 0.2 + 3 * 0.3) / 6, 1e-7);
}

TEST(TrainLogTest, SyncWaitsForReportsButNotForEver) {
  TrainLog log(Options(2, 1));
  log.AddContribution(Contribution(0, 1.0f), 0);
  EXPECT_THAT(log.Advance(3, kSecond), SizeIs(0));
  log.AddContribution(Contribution(1, 3.0f), kSecond);
  const auto first = log.Advance(3, kSecond);
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_DOUBLE_EQ(nlohmann::json::parse(first[0])["loss"], 2.0);
  // Step 2 has half of its reports, step 3 none: its worker died.
  log.AddContribution(Contribution(2, 5.0f), kSecond);
  EXPECT_THAT(log.Advance(3, 2 * kSecond), SizeIs(0));
  const auto second = log.Advance(3, 4 * kSecond);
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_EQ(nlohmann::json::parse(second[0])["step"], 2);
}

TEST(TrainLogTest, GoesOnBehindACheckpoint) {
  TrainLog::Options options = Options(2, 2);
  options.base_step = options.first_step = 7;
  options.first_contribution = 13;  // the last step was short
  options.base_seconds = 100.0;
  options.base_examples = 500;
  TrainLog log(std::move(options));
  log.AddContribution(Contribution(13, 1.0f), kSecond);
  log.AddContribution(Contribution(14, 2.0f), kSecond);
  const auto lines = log.Advance(8, kSecond);
  ASSERT_THAT(lines, SizeIs(1));
  const auto parsed = ParseTrainLine(lines[0]);
  EXPECT_EQ(parsed->step, 8u);
  EXPECT_DOUBLE_EQ(parsed->seconds, 101.0);
  EXPECT_EQ(parsed->examples, 520u);
}

TEST(TrainLogTest, NoStepComesTwiceWhenReportsAreLost) {
  TrainLog log(Options(0, 5));
  log.AddUnreported(7);
  log.AddContribution(Contribution(0, 1.0f), 0);
  log.AddContribution(Contribution(0, 1.0f), 0);
  log.AddContribution(Contribution(0, 1.0f), 0);
  const auto lines = log.Advance(10, 0);
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(ParseTrainLine(lines[0])->step, 8u);
  EXPECT_EQ(ParseTrainLine(lines[1])->step, 10u);
  EXPECT_THAT(log.End(10, 0), SizeIs(0));
}

TEST(TrainLogTest, ANaNIsNullInJson) {
  TrainLog log(Options(0, 1));
  log.AddContribution(Contribution(0, std::numeric_limits<float>::quiet_NaN()),
                      0);
  const auto lines = log.Advance(1, 0);
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_TRUE(nlohmann::json::parse(lines[0])["loss"].is_null());
  EXPECT_FALSE(ParseTrainLine("{\"step\":").has_value());
  EXPECT_FALSE(ParseTrainLine("{\"loss\":1}").has_value());
}

// What a program reports: `loss`, on `examples`, and more.
Progress Metrics(double loss, uint64_t examples,
                 const std::map<std::string, double>& more = {}) {
  Progress progress;
  MetricSums* const sums = progress.mutable_metrics();
  sums->set_reports(1);
  sums->set_examples(examples);
  const double weight = examples > 0 ? static_cast<double>(examples) : 1.0;
  std::map<std::string, double> all = more;
  all["loss"] = loss;
  for (const auto& [name, value] : all) {
    MetricSum* const metric = sums->add_metric();
    metric->set_name(name);
    metric->set_weighted_sum(value * weight);
    metric->set_weight(weight);
  }
  return progress;
}

TrainLog::Options OfScripts() {
  TrainLog::Options options;
  options.of_scripts = true;
  return options;
}

TEST(TrainLogTest, ScriptsHaveALineASecond) {
  TrainLog log(OfScripts());
  log.AddCounts(Staleness(6, 4, 3));
  log.AddCounts(Metrics(1.0, 30, {{"val/accuracy", 0.5}}));
  EXPECT_THAT(log.Advance(2, kSecond - 1), SizeIs(0));
  log.AddCounts(Metrics(4.0, 10));
  const auto lines = log.Advance(4, kSecond);
  ASSERT_THAT(lines, SizeIs(1));
  const auto json = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(json["step"], 4);
  EXPECT_DOUBLE_EQ(json["loss"], (30 * 1.0 + 10 * 4.0) / 40);
  EXPECT_DOUBLE_EQ(json["val/accuracy"], 0.5);
  EXPECT_EQ(json["examples"], 40);
  EXPECT_DOUBLE_EQ(json["examples_per_second"], 40.0);
  EXPECT_DOUBLE_EQ(json["seconds"], 1.0);
  EXPECT_DOUBLE_EQ(json["staleness_mean"], 1.5);
  EXPECT_FALSE(json.contains("learning_rate"));
  EXPECT_DOUBLE_EQ(log.newest().loss(), 1.75);
  // Nothing is said twice, and pushes alone are no line.
  EXPECT_THAT(log.Advance(9, 3 * kSecond), SizeIs(0));
  EXPECT_THAT(log.End(9, 4 * kSecond), SizeIs(0));
}

TEST(TrainLogTest, ScriptsThatTellNoExamplesHaveAPlainMean) {
  TrainLog log(OfScripts());
  log.AddCounts(Metrics(1.0, 0));
  log.AddCounts(Metrics(2.0, 0));
  const auto lines = log.End(2, kSecond / 2);
  ASSERT_THAT(lines, SizeIs(1));
  const auto json = nlohmann::json::parse(lines[0]);
  EXPECT_DOUBLE_EQ(json["loss"], 1.5);
  EXPECT_FALSE(json.contains("examples"));
  EXPECT_FALSE(json.contains("examples_per_second"));
}

TEST(TrainLogTest, WhatAScriptReportsBehindItsLastPushHasALine) {  // I1
  TrainLog::Options options = OfScripts();
  options.base_step = 7;
  TrainLog log(std::move(options));
  log.AddCounts(Metrics(std::numeric_limits<double>::quiet_NaN(), 0));
  const auto first = log.Advance(8, kSecond);
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_TRUE(nlohmann::json::parse(first[0])["loss"].is_null());
  Progress accuracy = Metrics(0.0, 0);
  accuracy.mutable_metrics()->mutable_metric(0)->set_name("accuracy");
  log.AddCounts(accuracy);
  const auto last = log.End(8, 2 * kSecond);
  ASSERT_THAT(last, SizeIs(1));
  const auto json = nlohmann::json::parse(last[0]);
  EXPECT_EQ(json["step"], 8);
  EXPECT_EQ(json["accuracy"], 0.0);
  EXPECT_FALSE(json.contains("loss"));
}

TEST(TrainLogTest, AJobHasSoManyNamesOfMetrics) {
  TrainLog log(OfScripts());
  size_t keys = 0;
  for (size_t i = 0; i < kMetricNamesMax + 5; ++i) {
    Progress progress = Metrics(1.0, 0);
    progress.mutable_metrics()->mutable_metric(0)->set_name(
        absl::StrCat("m", i));
    log.AddCounts(progress);
    for (const std::string& line :
         log.Advance(i + 1, static_cast<int64_t>(i + 1) * kSecond)) {
      keys += nlohmann::json::parse(line).contains(absl::StrCat("m", i));
    }
  }
  EXPECT_EQ(keys, kMetricNamesMax);
}

TEST(TrainLogTest, StepsOfContributions) {
  EXPECT_EQ(TrainLog(Options(0, 1)).StepOf(9), 10u);
  TrainLog::Options options = Options(4, 1);
  options.first_step = 7;
  options.first_contribution = 26;
  const TrainLog log(std::move(options));
  EXPECT_EQ(log.StepOf(25), 0u);
  EXPECT_EQ(log.StepOf(26), 8u);
  EXPECT_EQ(log.StepOf(29), 8u);
  EXPECT_EQ(log.StepOf(30), 9u);
}

}  // namespace
}  // namespace weir
