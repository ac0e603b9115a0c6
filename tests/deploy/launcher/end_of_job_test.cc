#include "deploy/launcher/end_of_job.h"

#include <atomic>
#include <future>
#include <memory>

#include "gtest/gtest.h"
#include "tests/support/wait_until.h"

namespace weir {
namespace {

// What a look at DONE brings, and how many looks there were. Shared with the
// thread that looks, which may outlive the test.
struct Place {
  std::atomic<bool> done{true};
  std::atomic<int> looks{0};
};

// Returns once what `place` has now was seen by a look that has ended.
void WaitForALook(const Place& place) {
  const int looks = place.looks;
  ASSERT_TRUE(WaitUntil([&] { return place.looks >= looks + 2; }));
}

TEST(EndOfJobTest, IsOverWhenItHasBeenDoneForLongerThanAChiefNeeds) {
  const auto place = std::make_shared<Place>();
  EndOfJob end([place] {
    ++place->looks;
    return place->done.load();
  });
  const int64_t wait_ns = EndOfJob::kChiefEndMax.count();
  WaitForALook(*place);
  EXPECT_FALSE(end.IsOver(1));
  EXPECT_FALSE(end.IsOver(wait_ns));
  EXPECT_TRUE(end.IsOver(1 + wait_ns));
  // Another chief goes on with the job.
  place->done = false;
  WaitForALook(*place);
  EXPECT_FALSE(end.IsOver(2 + wait_ns));
  place->done = true;
  WaitForALook(*place);
  EXPECT_FALSE(end.IsOver(3 + wait_ns));
  EXPECT_TRUE(end.IsOver(3 + 2 * wait_ns));
}

// The launcher's loop asks, and a signal must not wait for a store.
TEST(EndOfJobTest, NobodyWaitsForAPlaceThatDoesNotAnswer) {
  auto release = std::make_shared<std::promise<void>>();
  const auto looks = std::make_shared<std::atomic<int>>(0);
  const auto answered = std::make_shared<std::atomic<bool>>(false);
  {
    EndOfJob end([release, looks, answered] {
      ++*looks;
      release->get_future().wait_for(std::chrono::seconds(20));
      *answered = true;
      return true;
    });
    ASSERT_TRUE(WaitUntil([&] { return *looks == 1; }));
    EXPECT_FALSE(end.IsOver(1));
  }
  EXPECT_FALSE(*answered);
  release->set_value();
}

}  // namespace
}  // namespace weir
