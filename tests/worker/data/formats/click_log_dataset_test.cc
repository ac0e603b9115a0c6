// Compares the generator with its law: shares, click rate, and the AUC of the
// true probabilities.
#include "worker/data/formats/click_log_dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "gtest/gtest.h"

namespace weir {
namespace {

ClickLogSource Small(uint32_t stream = 0) {
  ClickLogSource source;
  source.set_count(20000);
  source.set_numeric(13);
  source.set_categorical(26);
  source.set_ids_per_feature(1000000);
  source.set_exponent(1.05);
  source.set_bag_size(1);
  source.set_stream(stream);
  return source;
}

std::unique_ptr<ClickLogDataset> Make(uint64_t seed,
                                      const ClickLogSource& source) {
  return std::make_unique<ClickLogDataset>(source, seed);
}

struct Row {
  std::vector<float> values;  // the label first
  std::vector<std::vector<uint64_t>> bags;
  bool operator==(const Row& other) const {
    return values == other.values && bags == other.bags;
  }
};

Row RowOf(const Dataset& dataset, int64_t index) {
  Row row;
  row.values.resize(dataset.feature_elements() + 1);
  EXPECT_TRUE(
      dataset.ReadSample(index, row.values.data() + 1, row.values.data()).ok());
  SparseBatch batch;
  batch.Clear(dataset.sparse_features().size());
  EXPECT_TRUE(dataset.ReadSparse(index, &batch).ok());
  for (const SparseFeature& feature : batch.features) {
    EXPECT_EQ(feature.offsets.size(), 2u);
    row.bags.push_back(feature.ids);
  }
  return row;
}

// Click rate and the AUC of the true probability; no ties between reals.
std::pair<double, double> RateAndTrueAuc(const ClickLogDataset& dataset) {
  std::vector<std::pair<double, float>> scored;
  std::vector<float> features(dataset.feature_elements());
  double clicks = 0;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    float label = 0.0f;
    EXPECT_TRUE(dataset.ReadSample(i, features.data(), &label).ok());
    scored.emplace_back(dataset.Probability(i), label);
    clicks += static_cast<double>(label);
  }
  std::sort(scored.begin(), scored.end());
  double negatives = 0;
  double ordered = 0;
  for (const auto& [probability, label] : scored) {
    ordered += label > 0 ? negatives : 0.0;
    negatives += label > 0 ? 0.0 : 1.0;
  }
  return {clicks / static_cast<double>(dataset.size()),
          ordered / (clicks * negatives)};
}

TEST(ClickLogDatasetTest, TheTruthHasAnAucOfFourFifthsAndAQuarterClicks) {
  for (const uint64_t seed : {1, 2, 3}) {
    for (const uint32_t stream : {0u, 1u}) {
      const auto [rate, auc] = RateAndTrueAuc(*Make(seed, Small(stream)));
      EXPECT_NEAR(auc, 0.80, 0.02) << seed << " " << stream;
      EXPECT_NEAR(rate, 0.25, 0.02) << seed << " " << stream;
    }
  }
  ClickLogSource odd = Small();
  odd.set_numeric(1);
  odd.set_categorical(1);
  odd.set_ids_per_feature(10);
  odd.set_exponent(2.0);
  const auto [rate, auc] = RateAndTrueAuc(*Make(4, odd));
  EXPECT_NEAR(auc, 0.80, 0.02);
  EXPECT_NEAR(rate, 0.25, 0.02);
}

TEST(ClickLogDatasetTest, LabelsComeAsOftenAsTheTruthSays) {
  const auto dataset = Make(5, Small());
  std::vector<float> features(13);
  std::map<int, std::array<double, 3>> tenths;  // samples, clicks, expected
  for (int64_t i = 0; i < dataset->size(); ++i) {
    float label = 0.0f;
    ASSERT_TRUE(dataset->ReadSample(i, features.data(), &label).ok());
    const double probability = dataset->Probability(i);
    auto& [samples, clicks, expected] =
        tenths[static_cast<int>(probability * 10)];
    samples += 1;
    clicks += static_cast<double>(label);
    expected += probability;
  }
  for (const auto& [tenth, sums] : tenths) {
    const auto& [samples, clicks, expected] = sums;
    // 5 standard deviations.
    EXPECT_NEAR(clicks, expected, 5 * std::sqrt(samples * 0.25)) << tenth;
  }
  EXPECT_GT(tenths.size(), 8u);
}

TEST(ClickLogDatasetTest, ASampleIsAFunctionOfSeedStreamAndIndexAlone) {
  const auto first = Make(1, Small());
  ClickLogSource longer = Small();
  longer.set_count(1000000);
  const auto second = Make(1, longer);
  const auto held_out = Make(1, Small(1));
  const auto other_seed = Make(2, Small());
  for (int64_t i = 99; i >= 0; --i) {
    const Row row = RowOf(*first, i);
    EXPECT_TRUE(row == RowOf(*second, i)) << i;
    EXPECT_EQ(first->Probability(i), second->Probability(i));
    EXPECT_FALSE(row == RowOf(*held_out, i)) << i;
    EXPECT_FALSE(row == RowOf(*other_seed, i)) << i;
  }
}

TEST(ClickLogDatasetTest, TheFirstSampleNeverChanges) {
  const Row row = RowOf(*Make(1, Small()), 0);
  EXPECT_EQ(row.values[0], 0.0f);
  EXPECT_FLOAT_EQ(row.values[1], 0.98730487f);
  EXPECT_EQ(row.bags[0], (std::vector<uint64_t>{45360}));
}

TEST(ClickLogDatasetTest, StreamsHaveTheSameTruth) {
  // With one id for each feature all samples have the same ids. The log odds
  // are linear in the one number then, with the same line in every stream (I1).
  const auto line = [](uint64_t seed, uint32_t stream) {
    ClickLogSource source = Small(stream);
    source.set_numeric(1);
    source.set_categorical(4);
    source.set_ids_per_feature(1);
    const auto dataset = Make(seed, source);
    const auto log_odds = [&](int64_t i) {
      const double p = dataset->Probability(i);
      return std::log(p / (1 - p));
    };
    const double x0 = static_cast<double>(RowOf(*dataset, 0).values[1]);
    const double x1 = static_cast<double>(RowOf(*dataset, 1).values[1]);
    const double slope = (log_odds(1) - log_odds(0)) / (x1 - x0);
    return std::pair(slope, log_odds(0) - slope * x0);
  };
  const auto [slope, bias] = line(7, 0);
  for (const uint32_t stream : {1u, 2u}) {
    EXPECT_NEAR(line(7, stream).first, slope, 1e-9);
    EXPECT_NEAR(line(7, stream).second, bias, 1e-9);
  }
  EXPECT_NE(line(8, 0).second, bias);
}

TEST(ClickLogDatasetTest, IdsOfAFeatureAreItsOwnAndFallAsAPower) {
  ClickLogSource source = Small();
  source.set_ids_per_feature(100);
  source.set_categorical(3);
  const auto dataset = Make(1, source);
  std::vector<double> count(300);
  for (int64_t i = 0; i < dataset->size(); ++i) {
    const Row row = RowOf(*dataset, i);
    for (uint64_t f = 0; f < 3; ++f) {
      ASSERT_EQ(row.bags[f].size(), 1u);
      ASSERT_EQ(row.bags[f][0] / 100, f);
      count[row.bags[f][0]] += 1;
    }
  }
  double total = 0;
  for (int k = 1; k <= 100; ++k) {
    total += std::pow(k, -1.05);
  }
  for (int f = 0; f < 3; ++f) {
    for (int k = 0; k < 100; ++k) {
      const double expected = 20000 * std::pow(k + 1, -1.05) / total;
      EXPECT_NEAR(count[f * 100 + k], expected, 5 * std::sqrt(expected));
    }
  }
}

TEST(ClickLogDatasetTest, BagsHaveOneToBagSizeIds) {
  ClickLogSource source = Small();
  source.set_bag_size(5);
  const auto dataset = Make(1, source);
  std::vector<int> count(6);
  for (int64_t i = 0; i < 1000; ++i) {
    for (const std::vector<uint64_t>& bag : RowOf(*dataset, i).bags) {
      ++count.at(bag.size());
    }
  }
  EXPECT_EQ(count[0], 0);
  for (int size = 1; size <= 5; ++size) {
    EXPECT_NEAR(count[size], 26000 / 5, 325);  // 5 standard deviations
  }
}

}  // namespace
}  // namespace weir
