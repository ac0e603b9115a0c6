#include "deploy/render/quantity.h"

#include <utility>

#include "gtest/gtest.h"
#include "tests/common/expect_error.h"

namespace weir {
namespace {

TEST(QuantityTest, ReadsMemoryAsKubernetesWritesIt) {
  const std::pair<const char*, int64_t> cases[] = {
      {"4Gi", 4 * kGiB},    {"512Mi", 512 * kMiB}, {"1.5Gi", 1536 * kMiB},
      {"2048Ki", 2 * kMiB}, {"1Ti", 1024 * kGiB},  {"1M", kMiB},
      {"1", kMiB},          {"1048577", 2 * kMiB}};
  for (const auto& [text, bytes] : cases) {
    const auto read = ParseMemory(text);
    ASSERT_TRUE(read.ok()) << text << read.status();
    EXPECT_EQ(*read, bytes) << text;
  }
}

TEST(QuantityTest, RefusesWhatIsNoAmount) {
  for (const char* text : {"", "Gi", "4 Gi", "-1Gi", "4gi", "1e3", "nan", "0",
                           "inf", "0x10", "4GiB", "99999999Ti", "1.2.3"}) {
    ExpectInvalid(ParseMemory(text).status(), "is not an amount of memory");
  }
  for (const char* text : {"", "m", "-1", "0", "1 ", "two", "1e9", "100000"}) {
    ExpectInvalid(ParseCpu(text).status(), "is not a number of processors");
  }
}

TEST(QuantityTest, WritesWhatItReads) {
  for (const char* text : {"4Gi", "80Mi", "1536Mi"}) {
    EXPECT_EQ(FormatMemory(*ParseMemory(text)), text);
  }
  for (const char* text : {"2", "500m", "1500m"}) {
    EXPECT_EQ(FormatCpu(*ParseCpu(text)), text);
  }
  EXPECT_EQ(*ParseCpu("0.5"), 500);
}

TEST(QuantityTest, RoundsUp) {
  EXPECT_EQ(RoundUpMemory(1), 16 * kMiB);
  EXPECT_EQ(RoundUpMemory(16.0 * kMiB), 16 * kMiB);
  EXPECT_EQ(RoundUpMemory(1.0 * kGiB + 1), kGiB + 64 * kMiB);
  EXPECT_EQ(ReadableBytes(0.5 * kMiB), "0.5 MiB");
  EXPECT_EQ(ReadableBytes(1.5 * kGiB), "1.50 GiB");
}

}  // namespace
}  // namespace weir
