#include "server/chief/files/task_queue.h"

#include <atomic>
#include <future>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(TaskQueueTest, RunsInOrder) {
  std::vector<int> order;
  std::promise<void> done;
  TaskQueue queue;
  for (int i = 0; i < 100; ++i) {
    queue.Post([&order, i] { order.push_back(i); });
  }
  queue.Post([&done] { done.set_value(); });
  done.get_future().wait();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(order[i], i);
  }
}

TEST(TaskQueueTest, DropsWhatHasNotBegunAndLeavesWhatHangs) {
  // Shared: the thread that hangs outlives the queue.
  auto release = std::make_shared<std::promise<void>>();
  auto begun = std::make_shared<std::promise<void>>();
  auto ran = std::make_shared<std::atomic<bool>>(false);
  const auto begin = std::chrono::steady_clock::now();
  {
    TaskQueue queue;
    queue.Post([release, begun] {
      begun->set_value();
      release->get_future().wait();
    });
    queue.Post([ran] { *ran = true; });
    begun->get_future().wait();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin,
            TaskQueue::kEndWait + std::chrono::seconds(5));
  EXPECT_FALSE(*ran);
  release->set_value();
}

}  // namespace
}  // namespace weir
