// Metrics against closed forms and a count over all pairs.
#include "worker/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/random.h"

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

TEST(MetricsTest, AucEqualsTheShareOfOrderedPairsWithTiesAsHalf) {
  RandomStream random(7);
  std::vector<float> scores(300), labels(300);
  for (size_t i = 0; i < scores.size(); ++i) {
    labels[i] = random.NextFloat() < 0.3f ? 1.0f : 0.0f;
    // Few distinct values, so that there are ties.
    scores[i] = static_cast<float>(random.NextBelow(12)) + 2 * labels[i];
  }
  double ordered = 0, pairs = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = 0; j < scores.size(); ++j) {
      if (labels[i] == 1 && labels[j] == 0) {
        pairs += 1;
        ordered += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
      }
    }
  }
  Metrics metrics(Loss::kSigmoidCrossEntropy);
  metrics.Add(scores.data(), labels.data(), 100, 1, 1);
  metrics.Add(scores.data() + 100, labels.data() + 100, 200, 1, 1);
  EXPECT_NEAR(metrics.Result()["auc"], ordered / pairs, 1e-12);
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
