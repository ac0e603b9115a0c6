#include "server/ps/memory/shared_arena.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>

#include "common/base/status.h"

namespace weir {
namespace {

// Address space, as a multiple of the machine's memory: ranges of sizes that a
// restored layout no longer uses are not cut anew.
constexpr size_t kMachines = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<SharedArena>> SharedArena::Create() {
  const size_t machine = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
                         static_cast<size_t>(sysconf(_SC_PAGESIZE));
  WEIR_ASSIGN_OR_RETURN(auto memory, SharedMemory::Create(kMachines * machine));
  // Huge pages, where the system gives them to shared memory.
  madvise(memory->data(), memory->bytes(), MADV_HUGEPAGE);
  return std::unique_ptr<SharedArena>(new SharedArena(std::move(memory)));
}

// Freed memory is poisoned, and the address space may be mapped again.
SharedArena::~SharedArena() {
  ASAN_UNPOISON_MEMORY_REGION(memory_->data(), used_);
}

char* SharedArena::NewSlab(size_t bytes) {
  if (bytes > memory_->bytes() - used_) {
    throw std::bad_alloc();
  }
  char* const slab = memory_->data() + used_;
  used_ += bytes;
  return slab;
}

void SharedArena::GiveBack(void* memory, size_t bytes) {
  // Best effort: without it the range merely stays resident.
  madvise(memory, bytes, MADV_REMOVE);
}

}  // namespace weir
