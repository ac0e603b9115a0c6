#include "common/base/stop_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "tests/support/wait_until.h"

namespace weir {
namespace {

TEST(StopSignalTest, RemembersTheFirstSignalAndCountsAll) {
  std::atomic<int> repeated{0};
  StopSignal signals({SIGTERM, SIGINT}, [&](int signal) { repeated = signal; });
  EXPECT_EQ(signals.first(), 0);
  kill(getpid(), SIGTERM);
  ASSERT_TRUE(WaitUntil([&] { return signals.count() == 1; }));
  EXPECT_EQ(repeated, 0);
  kill(getpid(), SIGINT);
  ASSERT_TRUE(WaitUntil([&] { return repeated != 0; }));
  EXPECT_EQ(repeated, SIGINT);
  EXPECT_EQ(signals.first(), SIGTERM);
  EXPECT_EQ(signals.count(), 2);
}

TEST(StopSignalTest, ASignalThatComesEarlyWaitsForTheCallback) {
  StopSignal signals({SIGTERM});
  kill(getpid(), SIGTERM);
  ASSERT_TRUE(WaitUntil([&] { return signals.first() != 0; }));
  int heard = 0;
  signals.OnStop([&](int signal) { heard = signal; });
  EXPECT_EQ(heard, SIGTERM);
}

TEST(StopSignalTest, CallsBackFromItsOwnThreadOnce) {
  StopSignal signals({SIGINT});
  std::atomic<int> calls{0};
  signals.OnStop([&](int) { ++calls; });
  kill(getpid(), SIGINT);
  ASSERT_TRUE(WaitUntil([&] { return calls == 1; }));
  kill(getpid(), SIGINT);
  ASSERT_TRUE(WaitUntil([&] { return signals.count() == 2; }));
  signals.OnStop({});
  EXPECT_EQ(calls, 1);
}

TEST(StopSignalTest, AnotherSignalThatOnlyItsThreadTakesDoesNotEndIt) {
  StopSignal signals({SIGTERM});
  kill(getpid(), SIGUSR1);
  kill(getpid(), SIGTERM);
  EXPECT_TRUE(WaitUntil([&] { return signals.first() == SIGTERM; }));
}

TEST(StopSignalDeathTest, GivesTheSignalsTheirEffectBack) {
  EXPECT_EXIT(
      {
        { StopSignal signals({SIGTERM}); }
        raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace weir
