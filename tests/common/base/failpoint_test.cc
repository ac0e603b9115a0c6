#include "common/base/failpoint.h"

#include <signal.h>

#include <chrono>
#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(FailpointTest, DoesNothingWhenNoneIsSet) {
  ASSERT_TRUE(InitFailpoints("").ok());
  EXPECT_FALSE(failpoint_internal::armed);
  Failpoint("test.a");
}

TEST(FailpointTest, KillsAtTheNthHitAndNotBefore) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        InitFailpoints("test.other:1,test.a:3").IgnoreError();
        Failpoint("test.a");
        Failpoint("test.a");
        Failpoint("test.b");
        std::fprintf(stderr, "two hits survived\n");
        Failpoint("test.a");
        std::exit(0);
      },
      testing::KilledBySignal(SIGKILL),
      "two hits survived\nfailpoint test.a: SIGKILL");
}

TEST(FailpointTest, ReadsTheEnvironment) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        ::setenv("WEIR_FAILPOINT", "worker.mid_push:1", 1);
        InitFailpointsFromEnv().IgnoreError();
        Failpoint("worker.mid_push");
        std::exit(0);
      },
      testing::KilledBySignal(SIGKILL), "worker.mid_push");
}

TEST(FailpointTest, CountsWithoutKilling) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        InitFailpoints("count").IgnoreError();
        Failpoint("ps.recv");
        Failpoint("chief.gc");
        Failpoint("ps.recv");
        std::exit(0);
      },
      testing::ExitedWithCode(0),
      "failpoint chief.gc: reached 1 times\n"
      "failpoint ps.recv: reached 2 times\n");
}

TEST(FailpointTest, SleepsAndCountsAtOneHit) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        InitFailpoints("count,ps.recv:30ms").IgnoreError();
        const auto begin = std::chrono::steady_clock::now();
        Failpoint("ps.recv");
        Failpoint("ps.recv");
        const auto slept = std::chrono::steady_clock::now() - begin;
        std::exit(slept < std::chrono::milliseconds(60) ? 1 : 0);
      },
      testing::ExitedWithCode(0), "^failpoint ps.recv: reached 2 times\n$");
}

TEST(FailpointTest, RefusesWhatCannotFire) {
  for (const char* spec :
       {"test.a", "test.a:", "test.a:0", "test.a:-1", "test.a:x", "test.a:0ms",
        "worker.mid_psuh:1", ":1", "test.a:1,nope:2"}) {
    const absl::Status status = InitFailpoints(spec);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << spec;
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr("WEIR_FAILPOINT"));
  }
}

}  // namespace
}  // namespace weir
