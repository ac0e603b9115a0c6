// Where a fibre stands in its code, so that another one can go on in its place.
//
// Place: the scheduler changes fibres by it, a million times a second.
// swapcontext would ask the system for the mask of signals each time.
//
// Threads: compatible.
#ifndef COMMON_THREADS_FIBER_CONTEXT_H_
#define COMMON_THREADS_FIBER_CONTEXT_H_

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>

namespace weir::sim {

class FiberContext {
 public:
  // The first Switch to it begins `main` on this stack; it must not return.
  void Begin(char* stack, size_t bytes, void (*main)());

  // Leaves the code that calls in `from`, until somebody switches to that, and
  // goes on in `to`. REQUIRES: Begin was called on `to`, or it was left before.
  static void Switch(FiberContext* from, FiberContext* to);

 private:
  bool is_left_ = false;
  ucontext_t begin_ = {};
  jmp_buf left_ = {};
};

}  // namespace weir::sim

#endif  // COMMON_THREADS_FIBER_CONTEXT_H_
