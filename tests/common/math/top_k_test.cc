#include "common/math/top_k.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/math/random.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

// The same by a full sort: magnitudes fall, and of equal ones places rise.
std::vector<uint32_t> BySorting(const std::vector<float>& values, size_t k) {
  std::vector<uint32_t> places(values.size());
  std::iota(places.begin(), places.end(), 0u);
  std::stable_sort(places.begin(), places.end(), [&](uint32_t a, uint32_t b) {
    return std::fabs(values[a]) > std::fabs(values[b]);
  });
  places.resize(std::min(k, places.size()));
  std::sort(places.begin(), places.end());
  return places;
}

std::vector<char> Encoded(const std::vector<float>& values, size_t k) {
  const auto places = LargestPlaces(values.data(), values.size(), k);
  std::vector<char> bytes(TopKBytesMax(k));
  bytes.resize(EncodeTopK(values.data(), places, bytes.data()));
  return bytes;
}

TEST(TopKTest, FindsWhatSortingFinds) {
  RandomStream random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> values(1 + random.NextBelow(3000));
    const bool ties = round % 3 == 0;
    for (float& value : values) {
      value = ties ? static_cast<float>(random.NextBelow(4)) - 1.5f
                   : random.NextFloat() - 0.5f;
    }
    const size_t k = 1 + random.NextBelow(static_cast<uint32_t>(values.size()));
    EXPECT_EQ(LargestPlaces(values.data(), values.size(), k),
              BySorting(values, k));
  }
  const std::vector<float> zeros(10, 0.0f);
  EXPECT_EQ(LargestPlaces(zeros.data(), 10, 3),
            (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(LargestPlaces(zeros.data(), 10, 100).size(), 10u);
  EXPECT_TRUE(LargestPlaces(zeros.data(), 10, 0).empty());
}

TEST(TopKTest, NanIsAmongTheLargest) {
  const std::vector<float> values = {1.0f, NAN, 3.0f, INFINITY};
  EXPECT_EQ(LargestPlaces(values.data(), 4, 2), (std::vector<uint32_t>{1, 3}));
}

TEST(TopKTest, WhatIsSentComesBackAndTheRestIsZero) {
  std::vector<float> values(300000, 0.25f);
  const std::vector<uint32_t> places = {0, 1, 129, 130, 20000, 299999};
  for (const uint32_t place : places) {
    values[place] = -1.0f - static_cast<float>(place);
  }
  const std::vector<char> bytes = Encoded(values, places.size());
  // Gaps 0, 0, 127, 0: a byte each; 19869: three; 279998: three.
  EXPECT_EQ(bytes.size(), 4 + 6 * 4 + 4 + 3 + 3u);
  std::vector<float> decoded(values.size(), 7.0f);
  ASSERT_TRUE(DecodeTopK(bytes, decoded.data(), decoded.size()).ok());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(decoded[i], values[i] == 0.25f ? 0.0f : values[i]) << i;
  }
}

TEST(TopKTest, APercentTakesLessThanThreePercentOfTheBytes) {
  RandomStream random(2);
  std::vector<float> values(262144);
  for (float& value : values) {
    value = random.NextFloat() - 0.5f;
  }
  EXPECT_LT(Encoded(values, 2622).size(), values.size() * 4 * 3 / 100);
}

TEST(TopKTest, RefusesBytesThatAreNotACode) {
  const std::vector<float> values = {0.0f, 5.0f, 0.0f, 6.0f};
  const std::vector<char> good = Encoded(values, 2);
  std::vector<float> out(4);
  ASSERT_TRUE(DecodeTopK(good, out.data(), 4).ok());
  for (size_t cut = 0; cut < good.size(); ++cut) {
    EXPECT_FALSE(DecodeTopK(std::span(good.data(), cut), out.data(), 4).ok())
        << cut;
  }
  std::vector<char> longer = good;
  longer.push_back(0);
  EXPECT_FALSE(DecodeTopK(longer, out.data(), 4).ok());
  EXPECT_FALSE(DecodeTopK(good, out.data(), 3).ok());  // place 3 of 3
  std::vector<char> many = good;
  many[0] = 5;
  EXPECT_FALSE(DecodeTopK(many, out.data(), 4).ok());
  std::vector<char> endless = good;
  std::fill(endless.begin() + 12, endless.end(), static_cast<char>(0xff));
  endless.resize(40, static_cast<char>(0xff));
  EXPECT_FALSE(DecodeTopK(endless, out.data(), 4).ok());
}

TEST(TopKTest, AnyBytesAreRefusedOrDecodedInBounds) {
  RandomStream random(9);
  for (int round = 0; round < 20000; ++round) {
    std::vector<char> bytes(random.NextBelow(60));
    for (char& byte : bytes) {
      byte = static_cast<char>(random.NextBelow(round % 2 == 0 ? 8 : 256));
    }
    if (bytes.size() >= 4) {
      bytes[1] = bytes[2] = bytes[3] = 0;
    }
    std::vector<float> out(16);  // ASan watches its end
    DecodeTopK(bytes, out.data(), out.size()).IgnoreError();
  }
}

}  // namespace
}  // namespace weir
