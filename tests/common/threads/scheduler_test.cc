#include "common/threads/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/threads/host_clocks.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Three fibres that take turns as they like.
std::string Order(uint64_t seed, Outcome* outcome) {
  std::string order;
  *outcome = RunWorld(seed, [&] {
    std::vector<Fiber*> fibers;
    for (const char name : {'a', 'b', 'c'}) {
      fibers.push_back(Start([&order, name] {
        for (int i = 0; i < 20; ++i) {
          order += name;
          MayYield();
        }
      }));
    }
    for (Fiber* const fiber : fibers) {
      EXPECT_TRUE(Join(fiber));
    }
  });
  EXPECT_EQ(outcome->stuck, "");
  EXPECT_EQ(order.size(), 60u);
  return order;
}

TEST(SchedulerTest, ASeedGivesOneOrderAndSeedsGiveMany) {
  std::set<std::string> orders;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Outcome first;
    Outcome second;
    const std::string order = Order(seed, &first);
    EXPECT_EQ(Order(seed, &second), order);
    EXPECT_EQ(second.hash, first.hash);
    EXPECT_EQ(second.points, first.points);
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 60u);
}

TEST(SchedulerTest, ALockIsHeldByOneFibre) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Lock lock;
    int inside = 0;
    int count = 0;
    const Outcome outcome = RunWorld(seed, [&] {
      std::vector<Fiber*> fibers;
      for (int i = 0; i < 4; ++i) {
        fibers.push_back(Start([&] {
          for (int k = 0; k < 10; ++k) {
            Acquire(&lock);
            EXPECT_EQ(++inside, 1);
            MayYield();
            --inside;
            ++count;
            Release(&lock);
          }
        }));
      }
      for (Fiber* const fiber : fibers) {
        Join(fiber);
      }
    });
    EXPECT_EQ(outcome.stuck, "");
    EXPECT_EQ(count, 40);
  }
}

// The second fibre may notify before the first one waits, and nobody looks at a
// condition: some order loses the wake-up.
TEST(SchedulerTest, ALostWakeUpIsFoundExactly) {
  int stuck = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Lock lock;
    WaitQueue queue;
    const Outcome outcome = RunWorld(seed, [&] {
      Fiber* const waits = Start([&] {
        Acquire(&lock);
        Wait(&queue, &lock);
        Release(&lock);
      });
      Fiber* const wakes = Start([&] { Wake(&queue, 1); });
      Join(wakes);
      Join(waits);
    });
    stuck += outcome.stuck.empty() ? 0 : 1;
  }
  EXPECT_GT(stuck, 5);
  EXPECT_LT(stuck, 45);
}

TEST(SchedulerTest, NoWakeUpIsLostUnderALock) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Lock lock;
    WaitQueue queue;
    bool ready = false;
    const Outcome outcome = RunWorld(seed, [&] {
      Fiber* const waits = Start([&] {
        Acquire(&lock);
        while (!ready) {
          Wait(&queue, &lock);
        }
        Release(&lock);
      });
      Acquire(&lock);
      ready = true;
      Release(&lock);
      Wake(&queue, 1);
      Join(waits);
    });
    EXPECT_EQ(outcome.stuck, "") << seed;
  }
}

TEST(SchedulerTest, TwoLocksInTwoOrdersAreFoundOut) {
  int stuck = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Lock a;
    Lock b;
    const Outcome outcome = RunWorld(seed, [&] {
      Fiber* const other = Start([&] {
        Acquire(&b);
        Acquire(&a);
        Release(&a);
        Release(&b);
      });
      Acquire(&a);
      Acquire(&b);
      Release(&b);
      Release(&a);
      Join(other);
    });
    stuck += outcome.stuck.empty() ? 0 : 1;
  }
  EXPECT_GT(stuck, 2);
}

TEST(SchedulerTest, TimeJumpsToTheNextDeadline) {
  std::vector<int> woken;
  const Outcome outcome = RunWorld(1, [&] {
    std::vector<Fiber*> fibers;
    for (const int hours : {3, 1, 2}) {
      fibers.push_back(Start([&woken, hours] {
        SleepFor(std::chrono::hours(hours));
        woken.push_back(hours);
      }));
    }
    for (Fiber* const fiber : fibers) {
      Join(fiber);
    }
  });
  EXPECT_EQ(woken, std::vector<int>({1, 2, 3}));
  EXPECT_GE(outcome.time, std::chrono::hours(3));
  EXPECT_LT(outcome.time, std::chrono::hours(3) + seconds(1));
}

TEST(SchedulerTest, AWaitEndsByItsTimeOrByAWake) {
  RunWorld(1, [] {
    WaitQueue queue;
    while (Wait(&queue, nullptr, milliseconds(5))) {
    }  // without a reason
    EXPECT_TRUE(queue.empty());
    bool woken = false;
    Fiber* const waits =
        Start([&] { woken = Wait(&queue, nullptr, seconds(100)); });
    SleepFor(seconds(1));
    Wake(&queue, 1);
    Join(waits);
    EXPECT_TRUE(woken);
    EXPECT_LT(Now(), seconds(10));
  });
}

TEST(SchedulerTest, AKilledProcessNeverRunsAgain) {
  int runs = 0;
  const Outcome outcome = RunWorld(7, [&] {
    StartAs(3, [&] {
      EXPECT_EQ(Process(), 3);
      Fiber* const child = Start([&] {
        EXPECT_EQ(Process(), 3);
        for (;;) {
          ++runs;
          SleepFor(milliseconds(10));
        }
      });
      Join(child);
    });
    SleepFor(seconds(1));
    EXPECT_GT(runs, 50);
    Kill(3);
    const int before = runs;
    SleepFor(seconds(1));
    EXPECT_EQ(runs, before);
  });
  EXPECT_EQ(outcome.stuck, "");
}

// The runtime keeps caught exceptions for each thread, not for each fibre.
TEST(SchedulerTest, EachFibreHasItsExceptions) {
  std::vector<std::string> caught;
  RunWorld(3, [&] {
    std::vector<Fiber*> fibers;
    for (const char* const name : {"a", "b", "c", "d"}) {
      fibers.push_back(Start([&caught, name] {
        try {
          throw std::runtime_error(name);
        } catch (const std::runtime_error&) {
          SleepFor(milliseconds(1 + RandomBelow(9)));
          try {
            throw;
          } catch (const std::runtime_error& again) {
            EXPECT_STREQ(again.what(), name);
            caught.emplace_back(again.what());
          }
        }
      }));
    }
    for (Fiber* const fiber : fibers) {
      Join(fiber);
    }
  });
  std::sort(caught.begin(), caught.end());
  EXPECT_EQ(caught, std::vector<std::string>({"a", "b", "c", "d"}));
}

TEST(SchedulerTest, AHaltedProcessGoesOnWhereItWas) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    int ticks = 0;
    const Outcome outcome = RunWorld(seed, [&] {
      StartAs(1, [&ticks] {
        for (;;) {
          SleepFor(milliseconds(10));
          ++ticks;
        }
      });
      SleepFor(milliseconds(100));
      Pause(1);
      const int before = ticks;
      SleepFor(seconds(10));  // its time comes, and it does not run
      EXPECT_EQ(ticks, before);
      Continue(1);
      SleepFor(milliseconds(100));
      EXPECT_GT(ticks, before);
      Pause(1);
      Kill(1);
      Continue(1);
      const int last = ticks;
      SleepFor(seconds(1));
      EXPECT_EQ(ticks, last);
    });
    EXPECT_EQ(outcome.stuck, "");
  }
}

TEST(SchedulerTest, AStepOfTheWallClockMovesNoOtherClock) {
  for (int i = 0; i < 2; ++i) {  // a new world begins without it
    RunWorld(1, [] {
      const auto monotonic = MonotonicTime();
      const auto wall = WallTime();
      StepWall(seconds(-3600));
      StepWall(seconds(60));
      EXPECT_EQ(WallTime(), wall - seconds(3540));
      EXPECT_EQ(MonotonicTime(), monotonic);
    });
  }
}

TEST(SchedulerTest, EachProcessHasItsOwnClocks) {
  RunWorld(1, [] {
    SetHostClocks(1, seconds(500), seconds(-7));
    const auto monotonic = MonotonicTime() - Now();
    const auto wall = WallTime() - Now();
    bool done = false;
    StartAs(1, [&] {
      EXPECT_EQ(MonotonicTime() - Now(), monotonic + seconds(500));
      EXPECT_EQ(WallTime() - Now(), wall - seconds(7));
      done = true;
    });
    SleepFor(seconds(1));
    EXPECT_TRUE(done);
  });
}

}  // namespace
}  // namespace weir::sim
