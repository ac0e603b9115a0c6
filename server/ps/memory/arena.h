// The source of memory for blocks and rows.
//
// Place: handed to the store, so that blocks can lie in memory that other
// processes map (shared_arena.h).
#ifndef SERVER_PS_MEMORY_ARENA_H_
#define SERVER_PS_MEMORY_ARENA_H_

#include <cstddef>

namespace weir {

// Hands out 64-byte aligned memory. Threads: safe.
class Arena {
 public:
  virtual ~Arena() = default;
  // Never returns null. Throws std::bad_alloc when there is no more.
  virtual void* Allocate(size_t bytes) = 0;
  // REQUIRES: `memory` came from Allocate of the same size.
  virtual void Free(void* memory, size_t bytes) = 0;

  // Process heap; never deleted.
  static Arena* Heap();
};

}  // namespace weir

#endif  // SERVER_PS_MEMORY_ARENA_H_
