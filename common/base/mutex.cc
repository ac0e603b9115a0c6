#include "common/base/mutex.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>

#include "common/base/plant.h"

#ifndef WEIR_SIM

namespace weir {
namespace {

// The clock of the condition variable and that of its deadlines must be one.
clockid_t WaitClock() {
  if (Planted("clock.wall_waits")) {
    return CLOCK_REALTIME;
  }
  return CLOCK_MONOTONIC;
}

// Longer waits end after this time, and callers loop anyway. It keeps the sum
// of now and the wait in its range.
constexpr int64_t kWaitMaxNs = int64_t{365} * 24 * 3600 * 1'000'000'000;

timespec DeadlineAfter(std::chrono::nanoseconds timeout) {
  constexpr int64_t kSecondNs = 1'000'000'000;
  timespec now = {};
  clock_gettime(WaitClock(), &now);
  const int64_t wait_ns =
      std::clamp<int64_t>(timeout.count(), 0, kWaitMaxNs) + now.tv_nsec;
  now.tv_sec += wait_ns / kSecondNs;
  now.tv_nsec = wait_ns % kSecondNs;
  return now;
}

}  // namespace

CondVar::CondVar() {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, WaitClock());
  pthread_cond_init(&cond_, &attributes);
  pthread_condattr_destroy(&attributes);
}

bool CondVar::WaitFor(Mutex* mutex, std::chrono::nanoseconds timeout) {
  const timespec deadline = DeadlineAfter(timeout);
  return pthread_cond_timedwait(&cond_, mutex->mutex_.native_handle(),
                                &deadline) != ETIMEDOUT;
}

}  // namespace weir

#endif
