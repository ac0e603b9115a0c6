#include "server/ps/store/work_thread.h"

#include <new>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(WorkThreadTest, RunsWorkInOrderOnOneThreadOfItsOwn) {
  std::vector<int> order;
  std::vector<std::thread::id> ids;
  {
    WorkThread thread;
    for (int i = 0; i < 100; ++i) {
      thread.Run([&, i] {
        order.push_back(i);
        ids.push_back(std::this_thread::get_id());
      });
    }
  }  // joins: no lock is needed to read what follows
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(order[static_cast<size_t>(i)], i);
    EXPECT_EQ(ids[static_cast<size_t>(i)], ids[0]);
  }
  EXPECT_NE(ids[0], std::this_thread::get_id());
}

TEST(WorkThreadTest, ItsEndWaitsForWhatIsQueued) {
  Mutex mutex;
  CondVar changed;
  bool begun = false;
  bool released = false;
  int done = 0;
  std::thread releaser([&] {
    MutexLock lock(&mutex);
    while (!begun) {
      changed.Wait(&mutex);
    }
    released = true;
    changed.NotifyAll();
  });
  {
    WorkThread thread;
    thread.Run([&] {
      MutexLock lock(&mutex);
      begun = true;
      changed.NotifyAll();
      while (!released) {
        changed.Wait(&mutex);
      }
      ++done;
    });
    thread.Run([&done] { ++done; });
  }
  EXPECT_EQ(done, 2);
  releaser.join();
}

TEST(WorkThreadTest, WorkMayQueueWork) {
  Mutex mutex;
  CondVar changed;
  bool inner = false;
  WorkThread thread;
  thread.Run([&] {
    thread.Run([&] {
      MutexLock lock(&mutex);
      inner = true;
      changed.NotifyAll();
    });
  });
  MutexLock lock(&mutex);
  while (!inner) {
    changed.Wait(&mutex);
  }
  EXPECT_TRUE(inner);
}

TEST(WorkThreadTest, WorkThatFindsNoMemoryEndsAlone) {
  bool next = false;
  {
    WorkThread thread;
    thread.Run([] { throw std::bad_alloc(); });
    thread.Run([&next] { next = true; });
  }
  EXPECT_TRUE(next);
}

}  // namespace
}  // namespace weir
