#include "proto/wire/wire_version.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(WireVersionTest, TheOwnVersionIsAccepted) {
  EXPECT_TRUE(CheckWireVersion("the chief", kWireVersion).ok());
}

TEST(WireVersionTest, AnotherVersionIsRefusedAndBothAreNamed) {
  for (const uint32_t theirs : {0u, kWireVersion + 1}) {
    EXPECT_EQ(
        CheckWireVersion("the chief", theirs),
        absl::InvalidArgumentError(absl::StrCat(
            "the chief speaks wire version ", theirs, ", this process ",
            kWireVersion, ": run the same release of Weir in every task")));
  }
}

}  // namespace
}  // namespace weir
