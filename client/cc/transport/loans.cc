#include "client/cc/transport/loans.h"

#include "common/base/clock.h"

namespace weir {

std::function<void()> Loans::Add() {
  {
    MutexLock lock(&state_->mutex);
    ++state_->out;
  }
  // The state is shared, not `this`: a transport may give back its last payload
  // after the client has stopped waiting for it.
  return [state = state_] {
    MutexLock lock(&state->mutex);
    if (--state->out == 0) {
      state->changed.NotifyAll();
    }
  };
}

bool Loans::WaitForNone(std::chrono::milliseconds timeout) {
  const auto end = MonotonicClock::now() + timeout;
  MutexLock lock(&state_->mutex);
  // In a loop: new loans may come while this waits.
  while (state_->out > 0) {
    const auto left = end - MonotonicClock::now();
    if (left <= left.zero()) {
      return false;
    }
    state_->changed.WaitFor(&state_->mutex, left);
  }
  return true;
}

}  // namespace weir
