#include "server/ps/block_buffer.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <vector>

#include "common/check.h"
#include "common/mutex.h"

namespace weir {
namespace {

constexpr size_t kAlignBytes = 64;
constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = 2 << 20;
// Address space is asked for in slabs of this: huge pages fit, and two of the
// default blocks share one. Only what is touched becomes memory.
constexpr size_t kSlabBytes = 32 << 20;
// Freed memory that stays resident, so that copy on write does not fault pages
// in again; beyond it, pages go back to the system.
constexpr size_t kWarmBytesMax = 64 << 20;

size_t RoundUp(size_t n, size_t to) { return (n + to - 1) / to * to; }

size_t RoundSize(size_t bytes) {
  return RoundUp(std::max<size_t>(bytes, 1),
                 bytes < kPageBytes ? kAlignBytes : kPageBytes);
}

// Never gives address space back; a freed range serves the next allocation of
// its size.
class HeapArena : public Arena {
 public:
  void* Allocate(size_t bytes) override {
    const size_t size = RoundSize(bytes);
    MutexLock lock(&mutex_);
    Ranges& free = free_[size];
    for (std::vector<char*>* list : {&free.warm, &free.cold}) {
      if (!list->empty()) {
        char* const memory = list->back();
        list->pop_back();
        warm_bytes_ -= list == &free.warm ? size : 0;
        ASAN_UNPOISON_MEMORY_REGION(memory, size);
        return memory;
      }
    }
    // Whole pages, so that they can be given back.
    size_t skip = size < kPageBytes ? 0 : slab_bytes_ % kPageBytes;
    if (size + skip > slab_bytes_) {
      NewSlab(RoundUp(size, kSlabBytes));
      skip = 0;
    }
    char* const memory = slab_ + skip;
    slab_ += size + skip;
    slab_bytes_ -= size + skip;
    return memory;
  }

  void Free(void* memory, size_t bytes) override {
    const size_t size = RoundSize(bytes);
    MutexLock lock(&mutex_);
    Ranges& free = free_[size];
    ASAN_POISON_MEMORY_REGION(memory, size);
    if (warm_bytes_ + size > kWarmBytesMax && size >= kPageBytes) {
      // Best effort: without it the range merely stays resident.
      madvise(memory, size, MADV_DONTNEED);
      free.cold.push_back(static_cast<char*>(memory));
      return;
    }
    warm_bytes_ += size;
    free.warm.push_back(static_cast<char*>(memory));
  }

 private:
  struct Ranges {
    std::vector<char*> warm;  // resident
    std::vector<char*> cold;  // given back; reads as zero
  };

  // What is left of the old slab is lost: less than one block.
  void NewSlab(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    void* const raw =
        mmap(nullptr, bytes + kHugePageBytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    WEIR_CHECK(raw != MAP_FAILED && "out of address space for blocks");
    slab_ = reinterpret_cast<char*>(
        RoundUp(reinterpret_cast<size_t>(raw), kHugePageBytes));
    slab_bytes_ = bytes;
    madvise(slab_, bytes, MADV_HUGEPAGE);
  }

  Mutex mutex_;
  std::map<size_t, Ranges> free_ ABSL_GUARDED_BY(mutex_);  // by size
  size_t warm_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  char* slab_ ABSL_GUARDED_BY(mutex_) = nullptr;
  size_t slab_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

Arena* Arena::Heap() {
  static HeapArena* const arena = new HeapArena();
  return arena;
}

BlockRef BlockRef::Make(Arena* arena, int64_t elements) {
  BlockRef ref;
  ref.rep_ = new Rep;
  ref.rep_->arena = arena;
  ref.rep_->elements = elements;
  ref.rep_->data = static_cast<float*>(
      arena->Allocate(static_cast<size_t>(elements) * sizeof(float)));
  return ref;
}

void BlockRef::Release() {
  if (rep_ != nullptr &&
      rep_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    rep_->arena->Free(rep_->data,
                      static_cast<size_t>(rep_->elements) * sizeof(float));
    delete rep_;
  }
  rep_ = nullptr;
}

}  // namespace weir
