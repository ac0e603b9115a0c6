#include "client/cc/job/metric_sums.h"

#include <limits>
#include <string>

#include "common/base/limits.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

MetricSums Sums(const std::string& name, double weighted_sum, double weight) {
  MetricSums sums;
  sums.set_reports(1);
  MetricSum* const metric = sums.add_metric();
  metric->set_name(name);
  metric->set_weighted_sum(weighted_sum);
  metric->set_weight(weight);
  return sums;
}

TEST(MetricSumsTest, ANameIsATagAndAKeyAsItIs) {
  for (const char* good : {"loss", "val/top-5_acc.2", "a", "learning_rate"}) {
    EXPECT_TRUE(CheckMetricName(good).ok()) << good;
  }
  EXPECT_TRUE(CheckMetricName(std::string(kMetricNameBytesMax, 'a')).ok());
  for (const char* bad : {"", "a b", "a\"", "\xc3\xa4", "a\n", "a\\", "a:b"}) {
    EXPECT_FALSE(CheckMetricName(bad).ok()) << bad;
  }
  EXPECT_FALSE(CheckMetricName(std::string(kMetricNameBytesMax + 1, 'a')).ok());
}

TEST(MetricSumsTest, KeysThatTheChiefWritesAreTaken) {
  for (const char* taken : {"step", "seconds", "examples", "phases"}) {
    EXPECT_NE(CheckMetricName(taken).message().find("Weir writes itself"),
              std::string::npos)
        << taken;
  }
}

TEST(MetricSumsTest, SumsOfOneNameBecomeOne) {
  MetricSums sums = Sums("loss", 6.0, 2.0);
  sums.set_examples(2);
  MetricSums more = Sums("loss", 1.0, 1.0);
  more.set_examples(1);
  MergeMetrics(more, &sums);
  MergeMetrics(Sums("accuracy", 0.5, 1.0), &sums);
  EXPECT_EQ(sums.reports(), 3u);
  EXPECT_EQ(sums.examples(), 3u);
  ASSERT_EQ(sums.metric_size(), 2);
  EXPECT_EQ(sums.metric(0).weighted_sum(), 7.0);
  EXPECT_EQ(sums.metric(0).weight(), 3.0);
}

TEST(MetricSumsTest, SumsHaveSoManyNames) {
  MetricSums sums;
  for (size_t i = 0; i <= kMetricNamesMax; ++i) {
    MergeMetrics(Sums("m" + std::to_string(i), 1.0, 1.0), &sums);
  }
  EXPECT_EQ(sums.metric_size(), static_cast<int>(kMetricNamesMax));
  EXPECT_TRUE(CheckMetricSums(sums).ok());
  *sums.add_metric() = Sums("more", 1.0, 1.0).metric(0);
  EXPECT_FALSE(CheckMetricSums(sums).ok());
}

TEST(MetricSumsTest, AWeightIsPositiveAndFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(CheckMetricSums(Sums("a", kInfinity, 1.0)).ok());
  for (const double bad : {0.0, -1.0, kInfinity, kInfinity - kInfinity}) {
    EXPECT_FALSE(CheckMetricSums(Sums("a", 1.0, bad)).ok()) << bad;
  }
  EXPECT_FALSE(CheckMetricSums(Sums("a b", 1.0, 1.0)).ok());
}

}  // namespace
}  // namespace weir
