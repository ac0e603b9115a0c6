#include "server/ps/memory/slab_arena.h"

#include <sanitizer/asan_interface.h>

#include <algorithm>

namespace weir {
namespace {

constexpr size_t kAlignBytes = 64;
constexpr size_t kPageBytes = 4096;
// Address space is asked for in slabs of this: huge pages fit, and two of the
// default blocks share one.
constexpr size_t kSlabBytes = 32 << 20;
// Freed memory that stays resident, so that copy on write does not fault pages
// in again; beyond it, pages go back to the system.
constexpr size_t kWarmBytesMax = 64 << 20;

size_t RoundUp(size_t n, size_t to) { return (n + to - 1) / to * to; }

// Rounds up to whole pages from a page on, which GiveBack can give back.
size_t RoundSize(size_t bytes) {
  if (bytes < kPageBytes) {
    return RoundUp(std::max<size_t>(bytes, 1), kAlignBytes);
  }
  return RoundUp(bytes, kPageBytes);
}

}  // namespace

void* SlabArena::Allocate(size_t bytes) {
  const size_t size = RoundSize(bytes);
  MutexLock lock(&mutex_);
  // I1. Only ranges of this very size: address space is never cut anew. Warm
  // ones first, whose pages need not be faulted in.
  Ranges& free = free_[size];
  for (std::vector<char*>* list : {&free.warm, &free.cold}) {
    if (!list->empty()) {
      char* const memory = list->back();
      list->pop_back();
      if (list == &free.warm) {
        warm_bytes_ -= size;
      }
      ASAN_UNPOISON_MEMORY_REGION(memory, size);
      return memory;
    }
  }
  // Whole pages begin at a page, so that they can be given back. The slab ends
  // at one, so what is left of it tells how far the next one is.
  size_t skip = 0;
  if (size >= kPageBytes) {
    skip = slab_bytes_ % kPageBytes;
  }
  if (size + skip > slab_bytes_) {
    // The rest of the old slab is lost: less than one block.
    const size_t slab_bytes = RoundUp(size, kSlabBytes);
    slab_ = NewSlab(slab_bytes);
    slab_bytes_ = slab_bytes;
    skip = 0;
  }
  char* const memory = slab_ + skip;
  slab_ += size + skip;
  slab_bytes_ -= size + skip;
  return memory;
}

void SlabArena::Free(void* memory, size_t bytes) {
  const size_t size = RoundSize(bytes);
  MutexLock lock(&mutex_);
  Ranges& free = free_[size];
  ASAN_POISON_MEMORY_REGION(memory, size);
  if (warm_bytes_ + size > kWarmBytesMax && size >= kPageBytes) {
    GiveBack(memory, size);
    free.cold.push_back(static_cast<char*>(memory));
    return;
  }
  warm_bytes_ += size;
  free.warm.push_back(static_cast<char*>(memory));
}

}  // namespace weir
