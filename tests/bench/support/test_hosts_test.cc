// Tests what needs no root; bench/training/overlap_bench.cc measures links.
#include "bench/support/test_hosts.h"

#include <string>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(TestHostsTest, ReadsRatesAsTcDoes) {
  EXPECT_EQ(*ParseRate("1gbit"), 1e9);
  EXPECT_EQ(*ParseRate("200mbit"), 2e8);
  EXPECT_EQ(*ParseRate("2.5mbit"), 2.5e6);
  EXPECT_EQ(*ParseRate("500kbit"), 5e5);
  EXPECT_EQ(*ParseRate("250000bit"), 250000);
  EXPECT_EQ(*ParseRate("250000"), 250000);
  // The limits themselves.
  EXPECT_EQ(*ParseRate("100kbit"), 1e5);
  EXPECT_EQ(*ParseRate("1000gbit"), 1e12);
}

TEST(TestHostsTest, RefusesWhatIsNoRate) {
  for (const std::string text : {"", "gbit", "1 gbit", "1Gbit", "1gbits",
                                 "99kbit", "1001gbit", "-1gbit", "0"}) {
    EXPECT_EQ(ParseRate(text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(TestHostsTest, RefusesToMakeNoHostOrTooMany) {
  for (const int count : {0, -1, 1'000'000}) {
    EXPECT_EQ(TestHosts::Create(count, 1e9).status().code(),
              absl::StatusCode::kInvalidArgument)
        << count;
  }
}

}  // namespace
}  // namespace weir
