#include "proto/wire/value_encoding.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/math/top_k.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

std::vector<float> Wave(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = std::sin(static_cast<float>(i));
  }
  return values;
}

// `bytes` in pieces of `step` bytes.
Payload Cut(const std::vector<char>& bytes, size_t step) {
  std::vector<std::span<const char>> pieces;
  for (size_t at = 0; at < bytes.size(); at += step) {
    pieces.emplace_back(bytes.data() + at, std::min(step, bytes.size() - at));
  }
  return Payload(std::move(pieces), nullptr);
}

TEST(ValueEncodingTest, EveryEncodingComesBackFromAnyPieces) {
  const std::vector<float> values = Wave(700);
  // The largest magnitude is 1. Its error is half an ulp in BF16 and F16, and
  // half a scale in INT8.
  for (const auto& [encoding, error] : {std::pair(F32, 0.0f),
                                        {BF16, 0.002f},
                                        {F16, 0.00025f},
                                        {INT8, 0.004f}}) {
    std::vector<char> bytes(EncodedBytes(encoding, values.size()));
    EncodeFloats(values.data(), values.size(), encoding, bytes.data());
    for (const size_t step : {1, 3, 100, 100000}) {
      std::vector<float> decoded(values.size());
      ASSERT_TRUE(DecodeFloats(Cut(bytes, step), encoding, values.size(),
                               decoded.data())
                      .ok());
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(decoded[i], values[i], error) << Encoding_Name(encoding);
      }
    }
    bytes.push_back(0);
    std::vector<float> decoded(values.size());
    const absl::Status longer =
        DecodeFloats(Cut(bytes, 100), encoding, values.size(), decoded.data());
    EXPECT_EQ(longer.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(longer.message().find(Encoding_Name(encoding)),
              std::string::npos);
  }
}

TEST(ValueEncodingTest, TopKComesBackFromPieces) {
  const std::vector<float> values = Wave(700);
  const auto places = LargestPlaces(values.data(), values.size(), 7);
  std::vector<char> bytes(TopKBytesMax(7));
  bytes.resize(EncodeTopK(values.data(), places, bytes.data()));
  std::vector<float> decoded(values.size());
  ASSERT_TRUE(
      DecodeFloats(Cut(bytes, 5), TOP_K, values.size(), decoded.data()).ok());
  for (const uint32_t place : places) {
    EXPECT_EQ(decoded[place], values[place]);
  }
}

TEST(ValueEncodingTest, AnUnknownEncodingIsRefused) {
  const std::vector<char> bytes(16);
  float out[4];
  const auto unknown = static_cast<Encoding>(9);
  EXPECT_FALSE(IsFixedSize(unknown));
  EXPECT_FALSE(IsFixedSize(TOP_K));
  EXPECT_EQ(DecodeFloats(Cut(bytes, 16), unknown, 4, out).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir
