#include "common/job/initializer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/math/random.h"

namespace weir {
namespace {

std::vector<float> Fill(const InitSpec& init, int64_t begin, int64_t count,
                        uint64_t seed = 1, int variable = 0) {
  std::vector<float> out(static_cast<size_t>(count));
  FillInitial(init, seed, variable, begin, count, out.data());
  return out;
}

constexpr InitSpec kNormal = {InitKind::kNormal, 0.5f};
constexpr InitSpec kUniform = {InitKind::kUniform, 0.25f};
constexpr InitSpec kConstant = {InitKind::kConstant, -3.0f};

TEST(InitializerTest, GivesTheSameBitsWhereverARangeIsCut) {
  for (const InitSpec& init : {kNormal, kUniform, kConstant}) {
    const std::vector<float> whole = Fill(init, 0, 100);
    for (int64_t begin = 0; begin <= 64; ++begin) {
      for (const int64_t count : {0, 1, 2, 3, 5, 8, 36}) {
        const std::vector<float> part = Fill(init, begin, count);
        ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin))
            << begin << " " << count;
      }
    }
  }
}

TEST(InitializerTest, DependsOnSeedAndVariable) {
  for (const InitSpec& init : {kNormal, kUniform}) {
    const std::vector<float> one = Fill(init, 0, 16, 1, 0);
    EXPECT_EQ(one, Fill(init, 0, 16, 1, 0));
    EXPECT_NE(one, Fill(init, 0, 16, 2, 0));
    EXPECT_NE(one, Fill(init, 0, 16, 1, 1));
    EXPECT_NE(one, Fill(init, int64_t{1} << 34, 16, 1, 0));
  }
}

TEST(InitializerTest, FillsWithTheConstant) {
  EXPECT_EQ(Fill(kConstant, 5, 3), (std::vector<float>{-3, -3, -3}));
}

TEST(InitializerTest, SpreadsUniformlyOverTheHalfOpenRange) {
  const int64_t count = 1 << 20;
  const std::vector<float> x = Fill(kUniform, 3, count);
  std::vector<int> bins(16);
  double sum = 0;
  for (const float value : x) {
    ASSERT_GE(value, -0.25f);
    ASSERT_LT(value, 0.25f);
    ++bins[static_cast<size_t>((value + 0.25f) * 32)];
    sum += static_cast<double>(value);
  }
  // Five standard deviations of a bin's count and of the mean.
  const double expected = static_cast<double>(count) / 16;
  for (const int bin : bins) {
    EXPECT_NEAR(bin, expected, 5 * std::sqrt(expected));
  }
  EXPECT_NEAR(sum / static_cast<double>(count), 0,
              5 * 0.5 / std::sqrt(12) / 1024);
}

TEST(InitializerTest, HasTheDistributionOfANormal) {
  const int64_t count = 1 << 20;
  std::vector<float> x = Fill(kNormal, 1, count);
  double sum = 0;
  double lag = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sum += static_cast<double>(x[i]);
    lag += static_cast<double>(x[i]) *
           static_cast<double>(x[i ^ 1]);  // the partner in its pair
  }
  EXPECT_NEAR(sum / static_cast<double>(count), 0, 5 * 0.5 / 1024);
  EXPECT_NEAR(lag / static_cast<double>(count), 0, 5 * 0.25 / 724);
  // The test of Kolmogorov and Smirnov exceeds 2.2 / sqrt(n) once in 8000
  // times.
  std::sort(x.begin(), x.end());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double cdf =
        0.5 * std::erfc(-static_cast<double>(x[i]) / 0.5 / std::sqrt(2.0));
    worst = std::max(worst, std::fabs(cdf - static_cast<double>(i) /
                                                static_cast<double>(count)));
  }
  EXPECT_LT(worst, 2.2 / 1024);
}

TEST(InitializerTest, AgreesWithBoxAndMullerFromTheSystemsLibm) {
  const uint64_t key = MixKey(9, 0x696e6974);
  const std::vector<float> x = Fill(kNormal, 0, 4096, 9, 3);
  for (uint64_t q = 0; q < 1024; ++q) {
    const auto words = Philox(key, 3, q);
    for (size_t k = 0; k < 4; k += 2) {
      const double radius =
          0.5 * std::sqrt(-2 * std::log((words[k] + 1.0) / 4294967296.0));
      const double angle = 2 * M_PI * (words[k + 1] / 4294967296.0);
      // One float rounding, and 1e-14 where the sine passes zero.
      EXPECT_NEAR(static_cast<double>(x[4 * q + k]), radius * std::cos(angle),
                  6e-8 * std::fabs(radius * std::cos(angle)) + 1e-14);
      EXPECT_NEAR(static_cast<double>(x[4 * q + k + 1]),
                  radius * std::sin(angle),
                  6e-8 * std::fabs(radius * std::sin(angle)) + 1e-14);
    }
  }
}

TEST(InitializerTest, NamesTheVariableWithABadScale) {
  VariableSpec variable;
  variable.name = "hidden/kernel";
  variable.init = {InitKind::kNormal, -1.0f};
  EXPECT_EQ(
      ValidateInitializer(variable).message(),
      "variable \"hidden/kernel\": initializer: kind 1 with scale -1; the "
      "scale must be finite, and >= 0 unless it is a constant");
  variable.init = {InitKind::kTruncatedNormal, 1.0f};
  EXPECT_FALSE(ValidateInitializer(variable).ok());
  variable.init = {InitKind::kConstant, std::numeric_limits<float>::infinity()};
  EXPECT_FALSE(ValidateInitializer(variable).ok());
  for (const InitSpec& init : {kNormal, kUniform, kConstant}) {
    variable.init = init;
    EXPECT_TRUE(ValidateInitializer(variable).ok());
  }
}

// ------------------------------------------------------------ rows of tables

std::vector<float> Row(const InitSpec& init, uint64_t seed, uint64_t id,
                       int dim) {
  std::vector<float> out(static_cast<size_t>(dim));
  FillInitialRow(init, RowInitKey(seed), id, dim, out.data());
  return out;
}

constexpr InitSpec kTruncated = {InitKind::kTruncatedNormal, 0.5f};

TEST(InitializerTest, MakesARowOfSeedAndIdAlone) {
  for (const InitSpec& init : {kNormal, kUniform, kTruncated}) {
    const std::vector<float> row = Row(init, 1, 7, 18);
    EXPECT_EQ(row, Row(init, 1, 7, 18));
    EXPECT_NE(row, Row(init, 2, 7, 18));
    for (const uint64_t other : {uint64_t{0}, uint64_t{8}, ~uint64_t{0},
                                 uint64_t{7} + (uint64_t{1} << 32)}) {
      EXPECT_NE(row, Row(init, 1, other, 18));
    }
    // A column does not depend on how many there are, nor a row on variables.
    const std::vector<float> narrow = Row(init, 1, 7, 5);
    EXPECT_TRUE(std::equal(narrow.begin(), narrow.end(), row.begin()));
    EXPECT_NE(row, Fill(init, 0, 18, 1, 7));
  }
  EXPECT_EQ(Row(kConstant, 1, 7, 2), (std::vector<float>{-3, -3}));
}

TEST(InitializerTest, TruncatesANormalAtTwoStandardDeviations) {
  constexpr int kRows = 1 << 14;
  std::vector<double> x;
  for (uint64_t id = 0; id < kRows; ++id) {
    const std::vector<float> row = Row(kTruncated, 3, id, 6);
    const std::vector<float> free = Row(kNormal, 3, id, 6);
    for (size_t k = 0; k < row.size(); ++k) {
      ASSERT_LE(std::fabs(row[k]), 1.0f);
      if (std::fabs(free[k]) <= 1.0f) {
        ASSERT_EQ(row[k], free[k]);  // only what lies outside is drawn again
      }
      x.push_back(static_cast<double>(row[k]));
    }
  }
  // The test of Kolmogorov and Smirnov again.
  std::sort(x.begin(), x.end());
  const double inside = std::erf(std::sqrt(2.0));
  const double count = static_cast<double>(x.size());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double cdf = 0.5 + 0.5 * std::erf(x[i] / 0.5 / std::sqrt(2)) / inside;
    worst = std::max(worst, std::fabs(cdf - static_cast<double>(i) / count));
  }
  EXPECT_LT(worst, 2.2 / std::sqrt(count));
}

TEST(InitializerTest, NamesThePathOfARowsBadScale) {
  EXPECT_EQ(ValidateRowInit({InitKind::kTruncatedNormal, -1.0f},
                            "table \"user\": initializer")
                .message(),
            "table \"user\": initializer: kind 3 with scale -1; the scale must "
            "be finite, and >= 0 unless it is a constant");
  EXPECT_FALSE(ValidateRowInit({static_cast<InitKind>(4), 1.0f}, "x").ok());
  EXPECT_TRUE(ValidateRowInit(kConstant, "x").ok());
  EXPECT_TRUE(ValidateRowInit(kTruncated, "x").ok());
}

}  // namespace
}  // namespace weir
