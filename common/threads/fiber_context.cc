#include "common/threads/fiber_context.h"

namespace weir::sim {

void FiberContext::Begin(char* stack, size_t bytes, void (*main)()) {
  is_left_ = false;
  getcontext(&begin_);
  begin_.uc_stack.ss_sp = stack;
  begin_.uc_stack.ss_size = bytes;
  begin_.uc_link = nullptr;
  makecontext(&begin_, main, 0);
}

void FiberContext::Switch(FiberContext* from, FiberContext* to) {
  from->is_left_ = true;
  // No object of this frame has a destructor, and each stack stays as it is.
  if (_setjmp(from->left_) != 0) {  // NOLINT(cert-err52-cpp)
    return;
  }
  if (to->is_left_) {
    _longjmp(to->left_, 1);  // NOLINT(cert-err52-cpp)
  }
  setcontext(&to->begin_);
}

}  // namespace weir::sim
