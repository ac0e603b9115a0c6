#include "server/ps/rows/hot_rows.h"

#include <chrono>
#include <thread>
#include <vector>

#include "common/base/limits.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

// Finds one row, whose id counts the looks.
struct Looking {
  HotRows::ByTable operator()() {
    clock->Advance(takes);
    return {{{++looks, 1}}};
  }
  FakeClock* clock;
  nanoseconds takes{0};
  uint64_t looks = 0;
};

TEST(HotRowsTest, WhatWasFoundIsToldForAWhile) {
  FakeClock clock;
  Looking looking = {&clock};
  HotRows hot(&clock, std::ref(looking));
  EXPECT_EQ(hot.Get()[0][0].id, 1u);
  clock.Advance(nanoseconds(kHotRowsKept) - nanoseconds(1));
  EXPECT_EQ(hot.Get()[0][0].id, 1u);
  clock.Advance(nanoseconds(1));
  EXPECT_EQ(hot.Get()[0][0].id, 2u);
}

TEST(HotRowsTest, ALongLookIsFollowedByAsLongAPause) {
  FakeClock clock;
  Looking looking = {&clock, seconds(14)};
  HotRows hot(&clock, std::ref(looking));
  EXPECT_EQ(hot.Get()[0][0].id, 1u);
  clock.Advance(seconds(13));
  EXPECT_EQ(hot.Get()[0][0].id, 1u);
  clock.Advance(seconds(1));
  EXPECT_EQ(hot.Get()[0][0].id, 2u);
}

TEST(HotRowsTest, ThreadsThatAskTogetherShareALook) {
  FakeClock clock;
  Looking looking = {&clock};
  HotRows hot(&clock, std::ref(looking));
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&hot] { EXPECT_EQ(hot.Get()[0][0].id, 1u); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(looking.looks, 1u);
}

}  // namespace
}  // namespace weir
