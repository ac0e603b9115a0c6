#include "common/base/identity.h"

#include <gtest/gtest.h>

#include <set>

namespace weir {
namespace {

TEST(IdentityTest, NoTwoIdsAreEqual) {
  std::set<uint64_t> ids;
  std::set<std::string> texts;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(ids.insert(RandomId()).second);
    EXPECT_TRUE(texts.insert(RandomHex(16)).second);
  }
}

TEST(IdentityTest, HexHasAsManyDigitsAsAskedFor) {
  for (const size_t digits : {16u, 32u, 64u}) {
    const std::string text = RandomHex(digits);
    EXPECT_EQ(text.size(), digits);
    EXPECT_EQ(text.find_first_not_of("0123456789abcdef"), std::string::npos);
  }
}

TEST(IdentityTest, TheHostHasAName) { EXPECT_NE(HostName(), ""); }

}  // namespace
}  // namespace weir
