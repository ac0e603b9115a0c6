#include "worker/train/histograms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/limits.h"
#include "common/math/random.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<uint64_t> CountsOf(const Histogram& histogram) {
  return {histogram.count().begin(), histogram.count().end()};
}

// Looks through the edges for every number.
std::vector<uint64_t> NaiveCounts(const std::vector<float>& numbers, double min,
                                  double max) {
  std::vector<uint64_t> counts(kHistogramBucketsMax);
  for (const float x : numbers) {
    int k = 0;
    while (k + 1 < kHistogramBucketsMax &&
           x >= min + (max - min) * (k + 1) / kHistogramBucketsMax) {
      ++k;
    }
    ++counts[k];
  }
  return counts;
}

TEST(HistogramsTest, EveryNumberIsInTheBucketOfItsEdges) {
  RandomStream random(5);
  for (const float scale : {1e-30f, 0.1f, 5e36f}) {
    for (const int count : {2, 31, 5000}) {
      std::vector<float> numbers;
      for (int i = 0; i < count; ++i) {
        // Few different ones, so that many are edges themselves.
        numbers.push_back(static_cast<float>(random.NextBelow(61)) * scale);
      }
      numbers.push_back(-scale);
      const auto [min, max] =
          std::minmax_element(numbers.begin(), numbers.end());
      const Histogram histogram = HistogramOf(numbers);
      EXPECT_EQ(histogram.min(), *min);
      EXPECT_EQ(histogram.max(), *max);
      EXPECT_EQ(histogram.not_finite(), 0u);
      EXPECT_EQ(CountsOf(histogram), NaiveCounts(numbers, *min, *max))
          << count << " numbers of " << scale;
    }
  }
}

TEST(HistogramsTest, WhatIsNotFiniteIsCountedAlone) {
  const Histogram histogram =
      HistogramOf(std::vector<float>{kNan, 2.0f, -kInfinity, 1.0f, kInfinity});
  EXPECT_EQ(histogram.not_finite(), 3u);
  EXPECT_EQ(histogram.min(), 1.0f);
  EXPECT_EQ(histogram.max(), 2.0f);
  EXPECT_EQ(histogram.count(0), 1u);
  EXPECT_EQ(histogram.count(kHistogramBucketsMax - 1), 1u);
  const Histogram none = HistogramOf(std::vector<float>{kNan});
  EXPECT_EQ(none.not_finite(), 1u);
  EXPECT_EQ(none.count_size(), 0);
}

TEST(HistogramsTest, EqualNumbersHaveOneBucket) {
  const Histogram histogram = HistogramOf(std::vector<float>(7, 0.25f));
  EXPECT_EQ(CountsOf(histogram), std::vector<uint64_t>{7});
  EXPECT_EQ(histogram.min(), 0.25f);
  EXPECT_EQ(histogram.max(), 0.25f);
}

// The flat space of `count` variables with 4 elements, of which the last is a
// buffer.
struct Space {
  explicit Space(int count) {
    std::vector<VariableSpec> variables;
    for (int v = 0; v < count; ++v) {
      VariableSpec variable;
      variable.name = "v" + std::to_string(v);
      variable.shape = {4};
      variables.push_back(std::move(variable));
    }
    variables.back().kind = VariableKind::kBuffer;
    layout = std::make_unique<Layout>(
        Layout::Create(std::move(variables), 1, 64).value());
    values.resize(layout->flat_elements(), 1.0f);
    gradients.resize(layout->flat_elements(), 2.0f);
  }
  Histograms::Options Options(uint32_t every_steps) const {
    return {.every_steps = every_steps,
            .layout = layout.get(),
            .values = values.data(),
            .gradients = gradients.data()};
  }

  std::unique_ptr<Layout> layout;
  std::vector<float> values;
  std::vector<float> gradients;
};

// Whether a contribution of these numbers is due.
bool Due(uint32_t every_steps, bool sync, const WorkUnit& work) {
  const Space space(2);
  Histograms histograms(space.Options(every_steps));
  histograms.Begin(work, sync);
  histograms.AddValues(0);
  histograms.AddGradients(0);
  const auto made = histograms.Take();
  EXPECT_FALSE(histograms.Take().has_value());
  return made.has_value();
}

TEST(HistogramsTest, TheFirstContributionOfEveryNthStepIsDue) {
  EXPECT_FALSE(Due(0, true, {.version = 0}));
  EXPECT_TRUE(Due(1, true, {.contribution = 5, .version = 0}));
  EXPECT_TRUE(Due(10, true, {.contribution = 5, .version = 9}));
  EXPECT_FALSE(Due(10, true, {.contribution = 9, .version = 10}));
  EXPECT_FALSE(Due(10, true, {.index = 1, .version = 9}));
  EXPECT_FALSE(Due(10, true, {.beyond_end = true, .version = 9}));
  EXPECT_TRUE(Due(10, false, {.contribution = 9}));
  EXPECT_FALSE(Due(10, false, {.contribution = 10, .version = 9}));
}

TEST(HistogramsTest, FrozenVariablesHaveNoGradientsAndBuffersNothing) {
  const Space space(3);
  Histograms::Options options = space.Options(1);
  options.left_out = {1};
  Histograms histograms(std::move(options));
  histograms.Begin({.contribution = 4}, /*sync=*/false);
  for (const int v : {0, 1, 2}) {
    histograms.AddValues(v);
  }
  for (const int v : {2, 1, 0}) {
    histograms.AddGradients(v);
  }
  const auto made = histograms.Take();
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->contribution(), 4u);
  ASSERT_EQ(made->variable_size(), 2);
  EXPECT_EQ(made->variable(0).variable(), 0u);
  EXPECT_EQ(made->variable(0).values().min(), 1.0f);
  EXPECT_EQ(made->variable(0).gradients().min(), 2.0f);
  EXPECT_EQ(made->variable(1).variable(), 1u);
  EXPECT_TRUE(made->variable(1).has_values());
  EXPECT_FALSE(made->variable(1).has_gradients());
}

TEST(HistogramsTest, AMessageHasSoManyVariables) {
  const Space space(kHistogramVariablesMax + 2);
  Histograms histograms(space.Options(1));
  histograms.Begin({}, /*sync=*/false);
  for (int v = 0; v < kHistogramVariablesMax + 2; ++v) {
    histograms.AddValues(v);
  }
  const auto made = histograms.Take();
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->variable_size(), kHistogramVariablesMax);
  // Far below what the chief takes in one message, with the largest counts.
  ContributionHistograms largest = *made;
  for (VariableHistograms& of : *largest.mutable_variable()) {
    for (Histogram* one : {of.mutable_values(), of.mutable_gradients()}) {
      one->clear_count();
      for (int k = 0; k < kHistogramBucketsMax; ++k) {
        one->add_count(uint64_t{1} << 40);
      }
    }
  }
  EXPECT_LT(largest.ByteSizeLong(), size_t{1} << 20);
}

}  // namespace
}  // namespace weir
