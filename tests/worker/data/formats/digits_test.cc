#include "worker/data/formats/digits.h"

#include <array>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

using Image = std::array<uint8_t, kDigitPixels>;

Image Draw(uint64_t seed, uint32_t stream, uint64_t index) {
  Image image;
  RenderDigit(seed, stream, index, image.data());
  return image;
}

// FNV-1a, so that the expectation is one number.
uint64_t Checksum(uint64_t seed, uint32_t stream, uint64_t count) {
  uint64_t sum = 0xcbf29ce484222325ULL;
  for (uint64_t i = 0; i < count; ++i) {
    for (const uint8_t byte : Draw(seed, stream, i)) {
      sum = (sum ^ byte) * 0x100000001b3ULL;
    }
    const auto label = static_cast<uint64_t>(DigitLabel(seed, stream, i));
    sum = (sum ^ label) * 0x100000001b3ULL;
  }
  return sum;
}

// Other pixels are another data set: results that people keep would no longer
// be comparable. Change these numbers only with a note in docs/.
TEST(DigitsTest, PixelsAreTheSameOnEveryMachine) {
  EXPECT_EQ(Checksum(1, 0, 100), 8013469657197736317u);
  EXPECT_EQ(Checksum(42, 1, 100), 14189077830833801698u);
}

TEST(DigitsTest, EveryTenSamplesHoldEveryDigit) {
  std::set<std::vector<int>> orders;
  for (uint64_t ten = 0; ten < 50; ++ten) {
    std::vector<int> order;
    for (uint64_t i = 0; i < 10; ++i) {
      order.push_back(DigitLabel(3, 0, ten * 10 + i));
    }
    EXPECT_EQ(std::set<int>(order.begin(), order.end()).size(), 10u);
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 45u);
}

TEST(DigitsTest, SeedStreamAndIndexEachGiveOtherSamples) {
  const Image image = Draw(1, 0, 0);
  EXPECT_EQ(Draw(1, 0, 0), image);
  EXPECT_NE(Draw(2, 0, 0), image);
  EXPECT_NE(Draw(1, 1, 0), image);
  EXPECT_NE(Draw(1, 0, 10), image);
}

TEST(DigitsTest, TheInkIsInsideTheImageAndNotTooLittleOrTooMuch) {
  for (uint64_t i = 0; i < 500; ++i) {
    int ink = 0;
    int border = 0;
    const Image image = Draw(9, 0, i);
    for (int p = 0; p < kDigitPixels; ++p) {
      const bool dark = image[p] > 127;
      ink += dark ? 1 : 0;
      const int row = p / kDigitSide;
      const int column = p % kDigitSide;
      const bool edge = row == 0 || column == 0 || row == kDigitSide - 1 ||
                        column == kDigitSide - 1;
      border += dark && edge ? 1 : 0;
    }
    EXPECT_GT(ink, 12) << i;
    EXPECT_LT(ink, 350) << i;
    EXPECT_LT(border, 20) << i;
  }
}

}  // namespace
}  // namespace weir
