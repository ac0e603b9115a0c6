#include "server/ps/service/leaving.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

using std::chrono::seconds;

TEST(LeavingTest, AtOnceWithoutAChief) {
  FakeClock clock;
  Leaving leaving(&clock, seconds(25));
  EXPECT_FALSE(leaving.begun());
  EXPECT_FALSE(leaving.MayGo());
  leaving.Begin();
  EXPECT_TRUE(leaving.begun());
  EXPECT_TRUE(leaving.MayGo());
}

TEST(LeavingTest, WaitsForAChiefThatIsHeardButNotForEver) {
  FakeClock clock;
  Leaving leaving(&clock, seconds(25));
  leaving.OnChief();
  leaving.Begin();
  for (int i = 0; i < 25; ++i) {
    clock.Advance(seconds(1));
    leaving.OnChief();
    leaving.Begin();  // a second time changes nothing
    EXPECT_FALSE(leaving.MayGo()) << i;
  }
  clock.Advance(seconds(1));
  EXPECT_TRUE(leaving.MayGo());
}

TEST(LeavingTest, GoesSoonAfterTheChiefFellSilent) {
  FakeClock clock;
  Leaving leaving(&clock, seconds(25));
  leaving.OnChief();
  clock.Advance(seconds(4));
  leaving.Begin();
  EXPECT_FALSE(leaving.MayGo());
  clock.Advance(seconds(2));
  EXPECT_TRUE(leaving.MayGo());
}

}  // namespace
}  // namespace weir
