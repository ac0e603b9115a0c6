#include "server/chief/state/capability.h"

#include <string>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(CapabilityTest, IsTheSameForWhoeverHasTheSecret) {
  const std::string secret(64, 's');
  const Capability one = CapabilityOf(secret, 7, 3, 2);
  EXPECT_EQ(one, CapabilityOf(secret, 7, 3, 2));
  EXPECT_NE(one, Capability());
}

TEST(CapabilityTest, IsAnotherOneForEveryGrant) {
  const std::string secret(64, 's');
  const Capability one = CapabilityOf(secret, 7, 3, 2);
  EXPECT_NE(one, CapabilityOf(std::string(64, 't'), 7, 3, 2));
  EXPECT_NE(one, CapabilityOf(secret, 8, 3, 2));
  EXPECT_NE(one, CapabilityOf(secret, 7, 2, 2));
  EXPECT_NE(one, CapabilityOf(secret, 7, 3, 3));
}

TEST(CapabilityTest, WithoutASecretNothingIsAskedFor) {
  EXPECT_EQ(CapabilityOf("", 7, 3, 2), Capability());
}

}  // namespace
}  // namespace weir
