// Pages that an observer hears of.
#include "worker/compute/host_pages.h"

#include <cstdint>
#include <map>
#include <utility>

#include "gtest/gtest.h"

namespace weir {
namespace {

class Observer : public PageObserver {
 public:
  void OnAllocate(void* pages, size_t bytes) override {
    EXPECT_TRUE(held.emplace(pages, bytes).second);
    // Not used before, and usable.
    static_cast<char*>(pages)[bytes - 1] = 1;
  }
  void OnFree(void* pages) override {
    static_cast<char*>(pages)[0] = 1;
    EXPECT_EQ(held.erase(pages), 1u);
  }
  std::map<void*, size_t> held;
};

TEST(PageAllocatorTest, TellsTheObserverWhatAVectorHolds) {
  Observer observer;
  {
    PageVector<float> all{PageAllocator<float>(&observer)};
    EXPECT_TRUE(observer.held.empty());
    all.resize(5000);
    EXPECT_EQ(observer.held, (std::map<void*, size_t>{{all.data(), 20000}}));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(all.data()) % 4096, 0u);
    all.resize(10);
    all.resize(50000);
    EXPECT_EQ(observer.held.size(), 1u);
    EXPECT_EQ(observer.held.begin()->first, all.data());
  }
  EXPECT_TRUE(observer.held.empty());
}

TEST(PageAllocatorTest, AVectorTakesItsObserverAlong) {
  Observer observer;
  PageVector<uint8_t> plain(3);
  {
    PageVector<uint8_t> other(7, 1, PageAllocator<uint8_t>(&observer));
    std::swap(plain, other);
    EXPECT_EQ(plain.size(), 7u);
    EXPECT_EQ(observer.held.size(), 1u);
  }
  EXPECT_EQ(observer.held.count(plain.data()), 1u);
  PageVector<uint8_t> last;
  last = std::move(plain);
  EXPECT_EQ(observer.held.count(last.data()), 1u);
  last = PageVector<uint8_t>(9);
  EXPECT_TRUE(observer.held.empty());
  EXPECT_EQ(last.size(), 9u);
}

}  // namespace
}  // namespace weir
