#include "common/threads/fiber_stacks.h"

#include <sys/mman.h>

namespace weir::sim {
namespace {

constexpr size_t kGuardBytes = 4096;

}  // namespace

FiberStacks::~FiberStacks() {
  for (char* const stack : idle_) {
    munmap(stack - kGuardBytes, kGuardBytes + kBytes);
  }
}

char* FiberStacks::Take() {
  if (!idle_.empty()) {
    char* const stack = idle_.back();
    idle_.pop_back();
    return stack;
  }
  void* const map = mmap(nullptr, kGuardBytes + kBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED || mprotect(map, kGuardBytes, PROT_NONE) != 0) {
    return nullptr;
  }
  return static_cast<char*>(map) + kGuardBytes;
}

}  // namespace weir::sim
