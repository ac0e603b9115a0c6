#include "server/ps/memory/arena.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(HeapArenaTest, IsOneForTheWholeProcess) {
  EXPECT_EQ(Arena::Heap(), Arena::Heap());
}

TEST(HeapArenaTest, GivesZeroedPagesThatCanBeWritten) {
  // A size that no other test of this file frees, so the pages are new.
  constexpr size_t kBytes = (3 << 20) + 4096;
  auto* const memory = static_cast<char*>(Arena::Heap()->Allocate(kBytes));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
  EXPECT_EQ(std::vector<char>(memory, memory + kBytes),
            std::vector<char>(kBytes, 0));
  std::memset(memory, 7, kBytes);
  EXPECT_EQ(memory[kBytes - 1], 7);
  Arena::Heap()->Free(memory, kBytes);
}

TEST(HeapArenaTest, WhatGoesBackToTheSystemReadsAsZeroAgain) {
  constexpr size_t kBytes = 33 << 20;
  // Two of them are more than stays warm, so the second one goes back.
  auto* const first = static_cast<char*>(Arena::Heap()->Allocate(kBytes));
  auto* const second = static_cast<char*>(Arena::Heap()->Allocate(kBytes));
  std::memset(first, 1, kBytes);
  std::memset(second, 2, kBytes);
  Arena::Heap()->Free(first, kBytes);
  Arena::Heap()->Free(second, kBytes);
  auto* const warm = static_cast<char*>(Arena::Heap()->Allocate(kBytes));
  auto* const cold = static_cast<char*>(Arena::Heap()->Allocate(kBytes));
  EXPECT_EQ(warm, first);
  EXPECT_EQ(warm[kBytes / 2], 1);
  EXPECT_EQ(cold, second);
  EXPECT_EQ(cold[0], 0);
  EXPECT_EQ(cold[kBytes / 2], 0);
  Arena::Heap()->Free(warm, kBytes);
  Arena::Heap()->Free(cold, kBytes);
}

TEST(HeapArenaTest, MoreThanTheAddressSpaceIsRefused) {
  EXPECT_THROW(Arena::Heap()->Allocate(size_t{1} << 60), std::bad_alloc);
  void* const memory = Arena::Heap()->Allocate(100);
  EXPECT_NE(memory, nullptr);
  Arena::Heap()->Free(memory, 100);
}

}  // namespace
}  // namespace weir
