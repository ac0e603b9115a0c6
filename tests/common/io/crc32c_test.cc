#include "common/io/crc32c.h"

#include <string>
#include <vector>

#include "common/math/random.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

uint32_t Bitwise(const uint8_t* data, size_t bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (size_t i = 0; i < bytes; ++i) {
    crc ^= data[i];
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
    }
  }
  return ~crc;
}

TEST(Crc32cTest, MatchesThePublishedCheckValues) {
  EXPECT_EQ(Crc32c("123456789", 9), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0').data(), 32), 0x8A9136AAu);  // RFC 3720
  EXPECT_EQ(Crc32c(std::string(32, '\xFF').data(), 32), 0x62A8AB43u);
  EXPECT_EQ(Crc32c("", 0), 0u);
}

TEST(Crc32cTest, EveryWayAgreesAtEveryLengthAndOffset) {
  RandomStream random(7);
  std::vector<uint8_t> data(300);
  for (uint8_t& byte : data) {
    byte = static_cast<uint8_t>(random.Next32());
  }
  for (size_t offset = 0; offset < 9; ++offset) {
    for (size_t bytes = 0; offset + bytes <= data.size(); ++bytes) {
      const uint8_t* at = data.data() + offset;
      const uint32_t want = Bitwise(at, bytes);
      ASSERT_EQ(Crc32c(at, bytes), want) << offset << " " << bytes;
      ASSERT_EQ(crc32c_internal::ExtendWithTable(0, at, bytes), want);
      const size_t cut = bytes / 3;
      ASSERT_EQ(ExtendCrc32c(Crc32c(at, cut), at + cut, bytes - cut), want);
    }
  }
}

TEST(Crc32cTest, LongDataAgreesAroundEveryLane) {
  RandomStream random(8);
  std::vector<uint8_t> data(10000);
  for (uint8_t& byte : data) {
    byte = static_cast<uint8_t>(random.Next32());
  }
  for (const size_t lanes : {1, 2, 3, 6, 9}) {
    for (size_t bytes = lanes * 1024 - 9; bytes <= lanes * 1024 + 9; ++bytes) {
      const size_t offset = bytes % 7;
      const uint8_t* at = data.data() + offset;
      const uint32_t want = Bitwise(at, bytes);
      ASSERT_EQ(Crc32c(at, bytes), want) << bytes;
      const size_t cut = bytes / 5;
      ASSERT_EQ(ExtendCrc32c(Crc32c(at, cut), at + cut, bytes - cut), want);
    }
  }
}

}  // namespace
}  // namespace weir
