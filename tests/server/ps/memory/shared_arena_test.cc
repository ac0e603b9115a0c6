#include "server/ps/memory/shared_arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

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

// As a client could do with the descriptor that it gets.
TEST(SharedArenaTest, AClientCannotOpenItForWriting) {
  const auto arena = SharedArena::Create();
  ASSERT_TRUE(arena.ok()) << arena.status();
  if (!(*arena)->memory().only_maker()) {
    GTEST_SKIP() << "this kernel has no F_SEAL_FUTURE_WRITE";
  }
  const BlockRef block = BlockRef::Make(arena->get(), 5);
  block.data()[0] = 1.0f;
  const auto read_only = (*arena)->memory().ReadOnlyFd();
  ASSERT_TRUE(read_only.ok()) << read_only.status();
  const std::string path = "/proc/self/fd/" + std::to_string(read_only->get());
  const FileDescriptor again(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (again.valid()) {
    const auto at = static_cast<off_t>((*arena)->OffsetOf(block.data()));
    const float value = 7.0f;
    EXPECT_LT(pwrite(again.get(), &value, sizeof(value), at), 0);
    EXPECT_EQ(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again.get(), 0),
        MAP_FAILED);
    EXPECT_NE(fallocate(again.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        0, 4096),
              0);
  }
  EXPECT_EQ(block.data()[0], 1.0f);
  block.data()[0] = 2.0f;  // the ps itself still writes
  EXPECT_EQ(block.data()[0], 2.0f);
}

TEST(SharedArenaTest, ReusesWhatWasFreedAndGivesBackWhereItMay) {
  const auto arena = SharedArena::Create();
  ASSERT_TRUE(arena.ok()) << arena.status();
  // More than stays warm: the rest reads as zero when it comes back. The seal
  // against writing by clients keeps all of it as it was.
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
  EXPECT_EQ(zeros, (*arena)->memory().only_maker() ? 0 : 24);
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
