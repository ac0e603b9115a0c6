#include "client/cc/sdk/metrics.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "common/base/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::sdk {
namespace {

using testing::HasSubstr;

TEST(SdkMetricsTest, AReportWeighsItsExamples) {
  std::set<std::string> names;
  const auto sums = ToMetricSums(
      {.values = {{"loss", 0.5}, {"accuracy", 0.25}}, .examples = 8}, &names);
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(sums->reports(), 1u);
  EXPECT_EQ(sums->examples(), 8u);
  ASSERT_EQ(sums->metric_size(), 2);
  EXPECT_EQ(sums->metric(0).name(), "loss");
  EXPECT_EQ(sums->metric(0).weighted_sum(), 4.0);
  EXPECT_EQ(sums->metric(0).weight(), 8.0);
  EXPECT_EQ(names, (std::set<std::string>{"accuracy", "loss"}));
  const auto plain = ToMetricSums({.values = {{"loss", 0.5}}}, &names);
  EXPECT_EQ(plain->metric(0).weight(), 1.0);
  EXPECT_EQ(plain->examples(), 0u);
}

TEST(SdkMetricsTest, WhatIsNotFiniteIsTaken) {
  std::set<std::string> names;
  const auto sums = ToMetricSums(
      {.values = {{"loss", std::numeric_limits<double>::quiet_NaN()}}}, &names);
  ASSERT_TRUE(sums.ok());
  EXPECT_TRUE(std::isnan(sums->metric(0).weighted_sum()));
}

TEST(SdkMetricsTest, RefusesTooMuch) {
  std::set<std::string> names;
  Metrics metrics;
  for (size_t i = 0; i < kMetricsPerReportMax; ++i) {
    metrics.values.emplace_back("m" + std::to_string(i), 1.0);
  }
  EXPECT_TRUE(ToMetricSums(metrics, &names).ok());
  metrics.values.emplace_back("more", 1.0);
  EXPECT_THAT(std::string(ToMetricSums(metrics, &names).status().message()),
              HasSubstr("33 metrics; at most 32"));
  for (size_t i = names.size(); i < kMetricNamesMax; ++i) {
    EXPECT_TRUE(
        ToMetricSums({.values = {{"n" + std::to_string(i), 1.0}}}, &names)
            .ok());
  }
  EXPECT_THAT(
      std::string(
          ToMetricSums({.values = {{"m1", 1.0}, {"too/many", 1.0}}}, &names)
              .status()
              .message()),
      HasSubstr("'too/many' would be number 129"));
  EXPECT_EQ(names.size(), kMetricNamesMax);
  EXPECT_TRUE(ToMetricSums({.values = {{"m1", 1.0}}}, &names).ok());
}

TEST(SdkMetricsTest, RefusesNames) {
  std::set<std::string> names;
  for (const Metrics& bad : {Metrics{{{"a b", 1.0}}}, Metrics{{{"step", 1.0}}},
                             Metrics{{{"a", 1.0}, {"a", 2.0}}}}) {
    const auto sums = ToMetricSums(bad, &names);
    EXPECT_EQ(sums.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(names.empty());
  }
}

}  // namespace
}  // namespace weir::sdk
