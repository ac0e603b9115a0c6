// Memory for the stacks of fibres, each with a page below it that ends the
// program when a fibre runs past its end.
//
// Threads: compatible.
#ifndef COMMON_THREADS_FIBER_STACKS_H_
#define COMMON_THREADS_FIBER_STACKS_H_

#include <cstddef>
#include <vector>

namespace weir::sim {

class FiberStacks {
 public:
  static constexpr size_t kBytes = 512 << 10;

  FiberStacks() = default;
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;
  // Frees those that were given back.
  ~FiberStacks();

  // The lowest byte of a stack; null: no memory.
  char* Take();
  void GiveBack(char* stack) { idle_.push_back(stack); }

 private:
  std::vector<char*> idle_;
};

}  // namespace weir::sim

#endif  // COMMON_THREADS_FIBER_STACKS_H_
