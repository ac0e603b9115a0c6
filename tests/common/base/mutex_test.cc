#include "common/base/mutex.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace {

// How far the wall clock of this process is off. The kernel's is not moved.
std::atomic<time_t> wall_offset_s{0};

}  // namespace

// Replaces libc's function in this program.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) {
    now->tv_sec += wall_offset_s;
  }
  return static_cast<int>(result);
}

namespace weir {
namespace {

struct Counter {
  Mutex mutex;
  CondVar changed;
  int value ABSL_GUARDED_BY(mutex) = 0;
};

TEST(MutexTest, OneThreadAtATime) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&counter] {
      for (int i = 0; i < 10000; ++i) {
        MutexLock lock(&counter.mutex);
        ++counter.value;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  MutexLock lock(&counter.mutex);
  EXPECT_EQ(counter.value, 40000);
}

TEST(CondVarTest, PassesATurnBackAndForth) {
  Counter counter;
  std::thread other([&counter] {
    for (int turn = 1; turn < 2000; turn += 2) {
      MutexLock lock(&counter.mutex);
      while (counter.value != turn) {
        counter.changed.Wait(&counter.mutex);
      }
      ++counter.value;
      counter.changed.NotifyAll();
    }
  });
  for (int turn = 0; turn < 2000; turn += 2) {
    MutexLock lock(&counter.mutex);
    while (counter.value != turn) {
      counter.changed.Wait(&counter.mutex);
    }
    ++counter.value;
    counter.changed.NotifyOne();
  }
  other.join();
  MutexLock lock(&counter.mutex);
  EXPECT_EQ(counter.value, 2000);
}

TEST(CondVarTest, WaitForReturnsFalseWhenNobodyNotifies) {
  Counter counter;
  const auto begin = std::chrono::steady_clock::now();
  MutexLock lock(&counter.mutex);
  // It may be woken without a reason and return true, but must time out in the
  // end.
  while (
      counter.changed.WaitFor(&counter.mutex, std::chrono::milliseconds(20))) {
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin,
            std::chrono::milliseconds(15));
}

TEST(CondVarTest, WaitsAreAsLongWhateverTheWallClockSays) {
  // A wait until a wall-clock time would end at once, for the kernel's clock
  // is an hour past that time.
  wall_offset_s = -3600;
  Counter counter;
  const auto begin = std::chrono::steady_clock::now();
  {
    MutexLock lock(&counter.mutex);
    while (counter.changed.WaitFor(&counter.mutex,
                                   std::chrono::milliseconds(20))) {
    }
  }
  wall_offset_s = 0;
  EXPECT_GE(std::chrono::steady_clock::now() - begin,
            std::chrono::milliseconds(20));
}

TEST(CondVarTest, AWaitThatIsOverAndOneWithoutEnd) {
  Counter counter;
  bool waits = false;
  std::thread other([&] {
    MutexLock lock(&counter.mutex);
    waits = true;
    while (counter.value == 0) {
      (void)counter.changed.WaitFor(&counter.mutex,
                                    std::chrono::nanoseconds::max());
    }
  });
  {
    MutexLock lock(&counter.mutex);
    while (counter.changed.WaitFor(&counter.mutex,
                                   -std::chrono::nanoseconds::max())) {
    }
  }
  while (true) {
    MutexLock lock(&counter.mutex);
    if (waits) {
      counter.value = 1;
      counter.changed.NotifyAll();
      break;
    }
  }
  other.join();
}

TEST(CondVarTest, WaitForIsWokenByANotification) {
  Counter counter;
  std::thread other([&counter] {
    MutexLock lock(&counter.mutex);
    counter.value = 1;
    counter.changed.NotifyAll();
  });
  {
    MutexLock lock(&counter.mutex);
    while (counter.value == 0) {
      ASSERT_TRUE(
          counter.changed.WaitFor(&counter.mutex, std::chrono::seconds(60)));
    }
  }
  other.join();
}

}  // namespace
}  // namespace weir
