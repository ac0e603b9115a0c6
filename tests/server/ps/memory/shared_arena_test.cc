#include "server/ps/memory/shared_arena.h"

#include <gtest/gtest.h>

#include <cstring>

#include "server/ps/block/block_buffer.h"

namespace weir {
namespace {

TEST(SharedArenaTest, AnotherMappingReadsWhatABlockHolds) {
  const auto arena = SharedArena::Create();
  ASSERT_TRUE(arena.ok()) << arena.status();
  const BlockRef small = BlockRef::Make(arena->get(), 5);
  const BlockRef large = BlockRef::Make(arena->get(), 300000);
  large.data()[299999] = 2.5f;
  small.data()[4] = -1.0f;
  auto fd = (*arena)->memory().ReadOnlyFd();
  ASSERT_TRUE(fd.ok()) << fd.status();
  const auto mapped = SharedMemory::Map(
      *std::move(fd), (*arena)->memory().bytes(), SharedMemory::Access::kRead);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  const auto read = [&](const BlockRef& block, size_t element) {
    float value = 0.0f;
    std::memcpy(&value,
                (*mapped)->data() + (*arena)->OffsetOf(block.data()) +
                    element * sizeof(float),
                sizeof(float));
    return value;
  };
  EXPECT_EQ(read(large, 299999), 2.5f);
  EXPECT_EQ(read(small, 4), -1.0f);
}

TEST(SharedArenaTest, ReusesWhatWasFreedAndGivesTheRestBack) {
  const auto arena = SharedArena::Create();
  ASSERT_TRUE(arena.ok()) << arena.status();
  // More than stays warm: the rest reads as zero when it comes back.
  std::vector<BlockRef> blocks;
  for (int i = 0; i < 40; ++i) {
    blocks.push_back(BlockRef::Make(arena->get(), 1 << 20));
    blocks.back().data()[0] = 1.0f;
  }
  const size_t end = (*arena)->OffsetOf(blocks.back().data());
  blocks.clear();
  int zeros = 0;
  for (int i = 0; i < 40; ++i) {
    blocks.push_back(BlockRef::Make(arena->get(), 1 << 20));
    zeros += blocks.back().data()[0] == 0.0f ? 1 : 0;
    EXPECT_LE((*arena)->OffsetOf(blocks.back().data()), end);
  }
  EXPECT_EQ(zeros, 24);
}

TEST(SharedArenaTest, WhatIsNotThereIsRefusedAndTheRestStays) {
  const auto arena = *SharedArena::Create();
  EXPECT_THROW(arena->Allocate(arena->memory().bytes() + 1), std::bad_alloc);
  auto* const memory = static_cast<char*>(arena->Allocate(8192));
  memory[8191] = 1;
  arena->Free(memory, 8192);
}

}  // namespace
}  // namespace weir
