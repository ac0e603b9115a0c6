#include "server/ps/block/block_buffer.h"

#include <cstring>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(BlockBufferTest, IsAlignedAndDoesNotOverlap) {
  std::vector<BlockRef> blocks;
  for (const int64_t elements : {1, 16, 17, 1000, 1024, 3, 262144, 16, 9000}) {
    for (int i = 0; i < 40; ++i) {
      blocks.push_back(BlockRef::Make(Arena::Heap(), elements));
      EXPECT_EQ(reinterpret_cast<size_t>(blocks.back().data()) % 64, 0u);
      std::memset(blocks.back().data(), static_cast<int>(blocks.size() % 251),
                  blocks.back().bytes());
    }
  }
  for (size_t b = 0; b < blocks.size(); ++b) {
    const auto* bytes = reinterpret_cast<unsigned char*>(blocks[b].data());
    for (size_t i = 0; i < blocks[b].bytes(); ++i) {
      ASSERT_EQ(bytes[i], (b + 1) % 251);
    }
  }
}

TEST(BlockBufferTest, CountsReferences) {
  BlockRef one = BlockRef::Make(Arena::Heap(), 32);
  EXPECT_TRUE(one.unique());
  BlockRef two = one;
  EXPECT_FALSE(one.unique());
  EXPECT_EQ(one.data(), two.data());
  BlockRef three = std::move(two);
  EXPECT_FALSE(two);  // NOLINT: what a move leaves
  three = BlockRef();
  EXPECT_TRUE(one.unique());
  const BlockRef& alias = one;
  one = alias;
  EXPECT_TRUE(one.unique());
}

TEST(BlockBufferTest, ReusesWhatWasFreed) {
  constexpr int64_t kElements = 12345;
  BlockRef first = BlockRef::Make(Arena::Heap(), kElements);
  float* const memory = first.data();
  first = BlockRef();
  const BlockRef second = BlockRef::Make(Arena::Heap(), kElements);
  EXPECT_EQ(second.data(), memory);
}

TEST(BlockBufferTest, ServesThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 500; ++i) {
        const BlockRef block = BlockRef::Make(Arena::Heap(), 2000 + i % 3);
        block.data()[0] = float(t);
        const BlockRef copy = block;
        ASSERT_EQ(copy.data()[0], float(t));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace weir
