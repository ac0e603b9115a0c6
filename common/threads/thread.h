// The threads of the product, and how it starts them.
//
// Place: all code of Weir takes its threads from here, its locks from
// common/base/mutex.h and its time from common/base/clock.h. So a build with
// --config=sim can put other ones under unchanged sources (scheduler.h).
#ifndef COMMON_THREADS_THREAD_H_
#define COMMON_THREADS_THREAD_H_

#include <thread>

#ifdef WEIR_SIM
#include <functional>
#include <utility>

#include "common/threads/scheduler.h"
#endif

namespace weir {

#ifdef WEIR_SIM

// What the product uses of std::thread, as a fibre.
class Thread {
 public:
  Thread() = default;
  template <typename Body>
  requires(!std::is_same_v<std::decay_t<Body>, Thread>) explicit Thread(
      Body&& body)
      : fiber_(sim::Start(std::function<void()>(std::forward<Body>(body)))) {}
  Thread(Thread&& other) noexcept
      : fiber_(std::exchange(other.fiber_, nullptr)) {}
  Thread& operator=(Thread&& other) noexcept {
    if (joinable()) {
      std::terminate();
    }
    fiber_ = std::exchange(other.fiber_, nullptr);
    return *this;
  }
  ~Thread() {
    if (joinable()) {
      std::terminate();
    }
  }

  bool joinable() const { return fiber_ != nullptr; }
  void join() { sim::Join(std::exchange(fiber_, nullptr)); }
  void detach() { fiber_ = nullptr; }
  static unsigned int hardware_concurrency() { return 2; }

 private:
  sim::Fiber* fiber_ = nullptr;
};

#else

using Thread = std::thread;

#endif

}  // namespace weir

#endif  // COMMON_THREADS_THREAD_H_
