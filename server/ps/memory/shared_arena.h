// An arena in memory that clients on this host may map, to read.
//
// Place: where a ps's blocks live when it offers the shared-memory transport;
// shm_service.cc hands the descriptor out.
//
// Threads: safe.
#ifndef SERVER_PS_MEMORY_SHARED_ARENA_H_
#define SERVER_PS_MEMORY_SHARED_ARENA_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "common/io/shared_memory.h"
#include "server/ps/memory/slab_arena.h"

namespace weir {

class SharedArena : public SlabArena {
 public:
  // UNAVAILABLE: the system has no such memory.
  static absl::StatusOr<std::unique_ptr<SharedArena>> Create();
  ~SharedArena() override;

  const SharedMemory& memory() const { return *memory_; }
  // Where in memory() an allocation is.
  size_t OffsetOf(const void* allocation) const {
    return static_cast<size_t>(static_cast<const char*>(allocation) -
                               memory_->data());
  }

 private:
  explicit SharedArena(std::shared_ptr<SharedMemory> memory)
      : memory_(std::move(memory)) {}
  char* NewSlab(size_t bytes) override;
  void GiveBack(void* memory, size_t bytes) override;

  const std::shared_ptr<SharedMemory> memory_;
  size_t used_ = 0;  // under SlabArena's lock
};

}  // namespace weir

#endif  // SERVER_PS_MEMORY_SHARED_ARENA_H_
