#include "server/ps/memory/arena.h"

#include <sys/mman.h>

#include <new>

#include "server/ps/memory/slab_arena.h"

namespace weir {
namespace {

constexpr size_t kHugePageBytes = 2 << 20;

class HeapArena : public SlabArena {
 private:
  char* NewSlab(size_t bytes) override {
    // One huge page more, so that the slab can begin at a multiple of one.
    // Without MAP_NORESERVE the untouched rest would count as used.
    void* const raw =
        mmap(nullptr, bytes + kHugePageBytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) {
      throw std::bad_alloc();
    }
    const size_t begin = reinterpret_cast<size_t>(raw);
    char* const slab =
        static_cast<char*>(raw) +
        (kHugePageBytes - begin % kHugePageBytes) % kHugePageBytes;
    madvise(slab, bytes, MADV_HUGEPAGE);
    return slab;
  }

  void GiveBack(void* memory, size_t bytes) override {
    // Best effort: without it the range merely stays resident.
    madvise(memory, bytes, MADV_DONTNEED);
  }
};

}  // namespace

Arena* Arena::Heap() {
  // Never deleted: threads that outlive main may still free blocks.
  static HeapArena* const arena = new HeapArena();
  return arena;
}

}  // namespace weir
