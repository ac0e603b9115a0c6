// Compares the metrics with closed forms.
#include "worker/evaluate/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/math/random.h"

namespace weir {
namespace {

TEST(MetricsTest, CountsTheLargestLogitAsTheClass) {
  Metrics metrics(Loss::kSoftmaxCrossEntropy);
  const float outputs[] = {1, 2, 0, 5, 4, 3};
  const float labels[] = {1, 2};
  metrics.Add(outputs, labels, 2, 3, 0.5);
  const float more[] = {0, 0, 9};
  const float label[] = {2};
  metrics.Add(more, label, 1, 3, 2.0);
  EXPECT_DOUBLE_EQ(metrics.Result()["accuracy"], 2.0 / 3);
  EXPECT_DOUBLE_EQ(metrics.Result()["loss"], 1.0);
  EXPECT_EQ(metrics.Result().count("auc"), 0u);
}

// Adds logits with labels one by one.
Metrics Binary(const std::vector<float>& logits,
               const std::vector<float>& labels,
               int64_t exact_rows_max = Metrics::kExactRowsMax) {
  Metrics metrics(Loss::kSigmoidCrossEntropy, exact_rows_max);
  metrics.Add(logits.data(), labels.data(), 1, 1, 1);
  metrics.Add(logits.data() + 1, labels.data() + 1, std::ssize(logits) - 1, 1,
              1);
  return metrics;
}

TEST(MetricsTest, BinaryLossesHaveAucLogLossAndCalibration) {
  // Probabilities 1/2, 4/5, 1/5 and 1/10.
  const auto result =
      Binary({0.0f, std::log(4.0f), -std::log(4.0f), -std::log(9.0f)},
             {0, 1, 1, 0})
          .Result();
  // Only the pair of 1/5 and 1/2 is in the wrong order.
  EXPECT_DOUBLE_EQ(result.at("auc"), 0.75);
  EXPECT_DOUBLE_EQ(result.at("accuracy"), 0.75);
  EXPECT_NEAR(result.at("log_loss"), -std::log(0.5 * 0.8 * 0.2 * 0.9) / 4,
              1e-7);
  EXPECT_NEAR(result.at("calibration"), (0.5 + 0.8 + 0.2 + 0.1) / 2, 1e-7);
  EXPECT_EQ(result.size(), 5u);
}

TEST(MetricsTest, LogLossStaysExactAtLogitsOfAnySize) {
  const auto result =
      Binary({1000.0f, -1000.0f, 1000.0f, 40.0f}, {0, 1, 1, 1}).Result();
  EXPECT_NEAR(result.at("log_loss"), 2000.0 / 4, 1e-12);
  EXPECT_NEAR(Binary({40.0f, 40.0f}, {1, 1}).Result().at("log_loss"),
              std::exp(-40.0), 1e-30);
}

TEST(MetricsTest, ManyRowsAreBinned) {
  RandomStream random(3);
  std::vector<float> logits(5000), labels(5000);
  for (size_t i = 0; i < logits.size(); ++i) {
    labels[i] = random.NextFloat() < 0.3f ? 1.0f : 0.0f;
    logits[i] = random.NextNormal() + labels[i];
  }
  const double exact = Binary(logits, labels).Result().at("auc");
  const double binned = Binary(logits, labels, 4999).Result().at("auc");
  EXPECT_EQ(Binary(logits, labels, 5000).Result().at("auc"), exact);
  EXPECT_NE(binned, exact);
  EXPECT_NEAR(binned, exact, 1e-4);
}

TEST(MetricsTest, WhatIsNotKnownIsLeftOut) {
  const auto no_clicks = Binary({1, 2}, {0, 0}).Result();
  EXPECT_EQ(no_clicks.count("calibration"), 0u);
  EXPECT_EQ(no_clicks.count("log_loss"), 1u);
  const auto diverged = Binary({1, std::nanf(""), 2}, {0, 1, 1}).Result();
  EXPECT_EQ(diverged.count("auc"), 0u);
  EXPECT_EQ(diverged.count("log_loss"), 0u);
  EXPECT_EQ(diverged.count("loss"), 1u);
}

// Group 7 has a pair in the right order and one in the wrong, group 8 one in
// the right order, group 9 has no pair; the last row belongs to no group.
TEST(MetricsTest, GroupAucIsTheMeanOverGroupsByTheirRows) {
  const std::vector<float> logits = {1, 3, 2, -5, 5, 0, 4};
  const std::vector<float> labels = {0, 0, 1, 0, 1, 1, 0};
  const uint64_t groups[] = {7, 7, 7, 8, 8, 9};
  Metrics metrics = Binary(logits, labels);
  EXPECT_EQ(metrics.Result().count("group_auc"), 0u);
  for (size_t row = 0; row < 6; ++row) {
    metrics.AddGroup(groups[row], logits[row], labels[row] > 0);
  }
  EXPECT_DOUBLE_EQ(metrics.Result().at("group_auc"), (3 * 0.5 + 2 * 1.0) / 5);
  EXPECT_DOUBLE_EQ(metrics.Result().at("auc"),
                   Binary(logits, labels).Result().at("auc"));
  Metrics many = Binary(logits, labels, 6);
  many.AddGroup(7, 1.0f, true);
  EXPECT_EQ(many.Result().count("group_auc"), 0u);
}

TEST(MetricsTest, RmseIsTheRootOfTheMeanLoss) {
  Metrics metrics(Loss::kMeanSquaredError);
  const float unused[] = {0, 0, 0};
  metrics.Add(unused, unused, 1, 1, 1.0);
  metrics.Add(unused, unused, 3, 1, 5.0);
  EXPECT_DOUBLE_EQ(metrics.Result()["rmse"], 2.0);
}

TEST(MetricsTest, NoRowsGiveNoMetrics) {
  EXPECT_TRUE(Metrics(Loss::kMeanSquaredError).Result().empty());
}

}  // namespace
}  // namespace weir
