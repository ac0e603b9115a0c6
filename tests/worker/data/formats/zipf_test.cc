#include "worker/data/formats/zipf.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

// The sum of (observed - expected)^2 / expected over 0 .. count - 1.
double ChiSquare(uint64_t count, double exponent, int draws) {
  const Zipf zipf(count, exponent);
  RandomStream random(5);
  std::vector<double> seen(count), share(count);
  for (int i = 0; i < draws; ++i) {
    seen.at(zipf.Draw(&random)) += 1;
  }
  double total = 0;
  for (uint64_t k = 0; k < count; ++k) {
    share[k] = std::pow(static_cast<double>(k + 1), -exponent);
    total += share[k];
  }
  double chi = 0;
  for (uint64_t k = 0; k < count; ++k) {
    const double expected = draws * share[k] / total;
    chi += (seen[k] - expected) * (seen[k] - expected) / expected;
  }
  return chi;
}

TEST(ZipfTest, SharesArePowersOfTheRank) {
  for (const double exponent : {0.0, 0.5, 0.999, 1.0, 1.05, 1.5, 2.0}) {
    // 49 degrees of freedom: mean 49, 5 standard deviations are 49.5.
    EXPECT_LT(ChiSquare(50, exponent, 200000), 98.5) << exponent;
  }
  EXPECT_LT(ChiSquare(2, 3.0, 100000), 25.0);
}

TEST(ZipfTest, OneNumberIsAlwaysIt) {
  const Zipf zipf(1, 1.05);
  RandomStream random(1);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(zipf.Draw(&random), 0u);
  }
}

TEST(ZipfTest, ALongTailHasItsShare) {
  // The numbers from m on have about the share of the integral.
  const uint64_t count = 100'000'000;
  const double exponent = 1.05;
  const Zipf zipf(count, exponent);
  RandomStream random(2);
  const int draws = 200000;
  int tail = 0;
  for (int i = 0; i < draws; ++i) {
    const uint64_t k = zipf.Draw(&random);
    ASSERT_LT(k, count);
    tail += k >= 1000 ? 1 : 0;
  }
  double head = 0;
  for (int k = 1; k <= 1000; ++k) {
    head += std::pow(k, -exponent);
  }
  const auto integral = [&](double x) {
    return std::pow(x, 1 - exponent) / (1 - exponent);
  };
  const double rest = integral(count + 0.5) - integral(1000.5);
  const double share = rest / (head + rest);
  EXPECT_NEAR(tail, draws * share, 5 * std::sqrt(draws * share * (1 - share)));
}

}  // namespace
}  // namespace weir
