// std::mutex with clang's thread-safety annotations.
//
// absl::Mutex would not do: Debian's Abseil is not built for ThreadSanitizer,
// which would then see a race in every guarded field. The clang build compiles
// with -Werror=thread-safety, so every guarded field is checked.
#ifndef COMMON_BASE_MUTEX_H_
#define COMMON_BASE_MUTEX_H_

#include <pthread.h>

#include <chrono>
#include <mutex>

#include "absl/base/thread_annotations.h"

#ifdef WEIR_SIM
#include "common/threads/scheduler.h"
#endif

namespace weir {

#ifdef WEIR_SIM

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { sim::Acquire(&lock_); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { sim::Release(&lock_); }

 private:
  friend class CondVar;
  sim::Lock lock_;
};

#else

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

#endif

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// A condition variable for Mutex. Callers loop over their condition.
//
// std::condition_variable would not do. Either it waits on the wall clock, so
// that a step of that clock makes every timed wait longer by the step; or it
// calls pthread_cond_clockwait, which this toolchain's ThreadSanitizer does not
// know. See "Clocks" in docs/design_notes.md.
#ifdef WEIR_SIM

class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    sim::Wait(&waiting_, &mutex->lock_);
  }
  bool WaitFor(Mutex* mutex, std::chrono::nanoseconds timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return sim::Wait(&waiting_, &mutex->lock_, timeout);
  }
  void NotifyOne() { sim::Wake(&waiting_, 1); }
  void NotifyAll() { sim::Wake(&waiting_, waiting_.size()); }

 private:
  sim::WaitQueue waiting_;
};

#else

class CondVar {
 public:
  CondVar();
  ~CondVar() { pthread_cond_destroy(&cond_); }
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    pthread_cond_wait(&cond_, mutex->mutex_.native_handle());
  }

  // Returns false when `timeout` passed on the monotonic clock without a
  // notification.
  bool WaitFor(Mutex* mutex, std::chrono::nanoseconds timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  void NotifyOne() { pthread_cond_signal(&cond_); }
  void NotifyAll() { pthread_cond_broadcast(&cond_); }

 private:
  pthread_cond_t cond_;
};

#endif

}  // namespace weir

#endif  // COMMON_BASE_MUTEX_H_
