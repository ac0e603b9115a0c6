// An arena that cuts blocks from large slabs of address space.
//
// Place: the common part of HeapArena (arena.cc) and SharedArena
// (shared_arena.h); they say where slabs come from.
//
// Invariants
//   I1. Address space is never given back; a freed range serves the next
//       allocation of its size.
// Threads: safe.
#ifndef SERVER_PS_MEMORY_SLAB_ARENA_H_
#define SERVER_PS_MEMORY_SLAB_ARENA_H_

#include <cstddef>
#include <map>
#include <vector>

#include "common/base/mutex.h"
#include "server/ps/memory/arena.h"

namespace weir {

class SlabArena : public Arena {
 public:
  void* Allocate(size_t bytes) override;
  void Free(void* memory, size_t bytes) override;

 protected:
  // Returns zeroed address space, aligned for huge pages where that helps, or
  // throws std::bad_alloc. Only what is touched becomes memory.
  virtual char* NewSlab(size_t bytes) = 0;
  // Gives the pages back to the system; they read as zero when touched again.
  virtual void GiveBack(void* memory, size_t bytes) = 0;

 private:
  struct Ranges {
    std::vector<char*> warm;  // resident
    std::vector<char*> cold;  // given back
  };

  Mutex mutex_;
  std::map<size_t, Ranges> free_ ABSL_GUARDED_BY(mutex_);  // by size
  size_t warm_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  char* slab_ ABSL_GUARDED_BY(mutex_) = nullptr;
  size_t slab_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace weir

#endif  // SERVER_PS_MEMORY_SLAB_ARENA_H_
