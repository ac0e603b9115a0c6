#include "server/ps/memory/slab_arena.h"

#include <cstdlib>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

// Slabs from the heap; counts what is asked for and given back.
class CountingSlabs : public SlabArena {
 public:
  ~CountingSlabs() override {
    for (char* slab : slabs_) {
      std::free(slab);
    }
  }
  size_t slabs() const { return slabs_.size(); }
  size_t bytes_given_back() const { return bytes_given_back_; }

 private:
  char* NewSlab(size_t bytes) override {
    slabs_.push_back(static_cast<char*>(std::aligned_alloc(4096, bytes)));
    return slabs_.back();
  }
  void GiveBack(void* memory, size_t bytes) override {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u);
    EXPECT_EQ(bytes % 4096, 0u);
    bytes_given_back_ += bytes;
  }

  std::vector<char*> slabs_;
  size_t bytes_given_back_ = 0;
};

TEST(SlabArenaTest, IsAlignedAndDoesNotOverlap) {
  CountingSlabs arena;
  std::set<std::pair<char*, char*>> ranges;
  for (const size_t bytes : {1, 64, 65, 4095, 4096, 4097, 100000, 64}) {
    char* const memory = static_cast<char*>(arena.Allocate(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u) << bytes;
    if (bytes >= 4096) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u) << bytes;
    }
    ranges.insert({memory, memory + bytes});
  }
  const char* end = nullptr;
  for (const auto& [begin, behind] : ranges) {
    EXPECT_GE(static_cast<const char*>(begin), end);
    end = behind;
  }
  EXPECT_EQ(arena.slabs(), 1u);
}

TEST(SlabArenaTest, AFreedRangeServesTheNextAllocationOfItsSizeOnly) {
  CountingSlabs arena;
  void* const first = arena.Allocate(8192);
  arena.Free(first, 8192);
  EXPECT_NE(arena.Allocate(4096), first);
  EXPECT_EQ(arena.Allocate(8000), first);  // rounds to the same size
  EXPECT_NE(arena.Allocate(8192), first);
}

TEST(SlabArenaTest, KeepsSomeFreedMemoryResidentAndGivesTheRestBack) {
  constexpr size_t kBlock = 1 << 20;
  constexpr size_t kWarm = 64 << 20;
  CountingSlabs arena;
  std::vector<void*> blocks;
  for (int i = 0; i < 66; ++i) {
    blocks.push_back(arena.Allocate(kBlock));
  }
  for (size_t i = 0; i < kWarm / kBlock; ++i) {
    arena.Free(blocks[i], kBlock);
  }
  EXPECT_EQ(arena.bytes_given_back(), 0u);
  arena.Free(blocks[64], kBlock);
  EXPECT_EQ(arena.bytes_given_back(), kBlock);
  // Taking a warm range makes room for the next one that is freed.
  EXPECT_EQ(arena.Allocate(kBlock), blocks[63]);
  arena.Free(blocks[65], kBlock);
  EXPECT_EQ(arena.bytes_given_back(), kBlock);
  // Less than a page is never given back, however much of it is free.
  void* const small = arena.Allocate(64);
  arena.Free(small, 64);
  EXPECT_EQ(arena.bytes_given_back(), kBlock);
}

TEST(SlabArenaTest, AsksForALargerSlabOnlyWhenTheOldOneIsUsedUp) {
  CountingSlabs arena;
  arena.Allocate(20 << 20);
  arena.Allocate(12 << 20);
  EXPECT_EQ(arena.slabs(), 1u);
  arena.Allocate(64);
  EXPECT_EQ(arena.slabs(), 2u);
  arena.Allocate(100 << 20);  // larger than a slab
  EXPECT_EQ(arena.slabs(), 3u);
}

}  // namespace
}  // namespace weir
