#include "server/ps/block/gradient_reader.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

// Floats 0, 1, 2, ... cut after each of `cuts` bytes.
Payload Counting(int count, const std::vector<size_t>& cuts) {
  auto values = std::make_shared<std::vector<float>>(count);
  for (int i = 0; i < count; ++i) {
    (*values)[i] = float(i);
  }
  const char* const bytes = reinterpret_cast<const char*>(values->data());
  std::vector<std::span<const char>> pieces;
  size_t at = 0;
  for (const size_t cut : cuts) {
    pieces.emplace_back(bytes + at, cut - at);
    at = cut;
  }
  pieces.emplace_back(bytes + at, values->size() * 4 - at);
  return Payload(std::move(pieces), values);
}

TEST(GradientReaderTest, StitchesElementsThatPiecesCut) {
  // Cuts inside elements 0 (twice), 2, at a border, empty pieces, at the end.
  const Payload payload = Counting(20, {1, 3, 9, 9, 16, 40, 40, 41, 80});
  for (int64_t count_max = 1; count_max < 22; ++count_max) {
    GradientReader reader(payload);
    for (int64_t at = 0; at < 20;) {
      const GradientReader::Run run =
          reader.Next(std::min<int64_t>(count_max, 20 - at));
      ASSERT_GE(run.count, 1);
      ASSERT_LE(run.count, count_max);
      for (int64_t i = 0; i < run.count; ++i, ++at) {
        float value;
        std::memcpy(&value, run.data + i * 4, 4);
        ASSERT_EQ(value, float(at));
      }
    }
  }
}

TEST(GradientReaderTest, SkipsOverPieces) {
  const Payload payload = Counting(20, {1, 3, 9, 9, 16, 40, 40, 41});
  for (int skip = 0; skip < 20; ++skip) {
    GradientReader reader(payload);
    reader.Skip(skip);
    float value;
    std::memcpy(&value, reader.Next(1).data, 4);
    EXPECT_EQ(value, float(skip));
    if (skip < 18) {
      reader.Skip(1);
      std::memcpy(&value, reader.Next(1).data, 4);
      EXPECT_EQ(value, float(skip + 2));
    }
  }
}

}  // namespace
}  // namespace weir
