#include "server/chief/state/reports.h"

#include <functional>
#include <limits>
#include <string>

#include "common/base/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::HasSubstr;

constexpr uint64_t kContributions = 10;
constexpr int kVariables = 3;

// What a worker of a job of kContributions and kVariables may say.
Progress Good() {
  Progress progress;
  progress.add_report()->set_contribution(kContributions - 1);
  ContributionHistograms* const all = progress.add_histograms();
  all->set_contribution(kContributions - 1);
  VariableHistograms* const of = all->add_variable();
  of->set_variable(kVariables - 1);
  of->mutable_values()->set_min(-1.0f);
  of->mutable_values()->set_max(1.0f);
  for (int k = 0; k < kHistogramBucketsMax; ++k) {
    of->mutable_values()->add_count(std::numeric_limits<uint64_t>::max());
  }
  MetricSum* const metric = progress.mutable_metrics()->add_metric();
  metric->set_name("loss");
  metric->set_weight(1.0);
  return progress;
}

absl::Status Check(const std::function<void(Progress*)>& change) {
  Progress progress = Good();
  change(&progress);
  return CheckReports(progress, kContributions, kVariables);
}

Histogram* ValuesOf(Progress* progress) {
  return progress->mutable_histograms(0)->mutable_variable(0)->mutable_values();
}

TEST(ReportsTest, WhatIsOfTheJobPasses) {
  EXPECT_TRUE(Check([](Progress*) {}).ok());
  EXPECT_TRUE(CheckReports(Progress(), kContributions, kVariables).ok());
  // Nobody counts the contributions of programs.
  EXPECT_TRUE(CheckReports(Good(), 0, kVariables).ok());
}

TEST(ReportsTest, NumbersBeyondTheJobAreRefused) {
  EXPECT_THAT(std::string(Check([](Progress* p) {
                            p->mutable_report(0)->set_contribution(10);
                          }).message()),
              HasSubstr("a report of contribution 10: the job has 10"));
  EXPECT_THAT(std::string(Check([](Progress* p) {
                            p->mutable_histograms(0)->set_contribution(10);
                          }).message()),
              HasSubstr("histograms of contribution 10"));
  EXPECT_THAT(
      std::string(Check([](Progress* p) {
                    p->mutable_histograms(0)->mutable_variable(0)->set_variable(
                        3);
                  }).message()),
      HasSubstr("histograms of variable 3: the job has 3"));
}

TEST(ReportsTest, HistogramsHaveBounds) {
  EXPECT_THAT(std::string(Check([](Progress* p) {
                            ValuesOf(p)->add_count(1);
                          }).message()),
              HasSubstr("31 buckets, at most 30"));
  EXPECT_THAT(std::string(Check([](Progress* p) {
                            ValuesOf(p)->set_max(-2.0f);
                          }).message()),
              HasSubstr("from -1 to -2"));
  EXPECT_FALSE(Check([](Progress* p) {
                 ValuesOf(p)->set_min(std::numeric_limits<float>::quiet_NaN());
               }).ok());
  EXPECT_FALSE(Check([](Progress* p) {
                 ValuesOf(p)->set_max(std::numeric_limits<float>::infinity());
               }).ok());
  EXPECT_FALSE(Check([](Progress* p) {
                 p->mutable_histograms(0)
                     ->mutable_variable(0)
                     ->mutable_gradients()
                     ->set_min(1.0f);
               }).ok());
  const auto with = [](int count) {
    return Check([count](Progress* p) {
      while (p->histograms(0).variable_size() < count) {
        p->mutable_histograms(0)->add_variable();
      }
    });
  };
  EXPECT_TRUE(with(kHistogramVariablesMax).ok());
  EXPECT_THAT(std::string(with(kHistogramVariablesMax + 1).message()),
              HasSubstr("histograms of 513 variables, at most 512"));
  EXPECT_FALSE(Check([](Progress* p) {  // in all
                 *p->add_histograms() = p->histograms(0);
                 while (p->histograms(1).variable_size() <
                        kHistogramVariablesMax) {
                   p->mutable_histograms(1)->add_variable();
                 }
               })
                   .ok());
}

TEST(ReportsTest, MetricsHaveNamesOfMetrics) {
  EXPECT_FALSE(Check([](Progress* p) {
                 p->mutable_metrics()->mutable_metric(0)->set_name("a\"b");
               }).ok());
}

}  // namespace
}  // namespace weir
