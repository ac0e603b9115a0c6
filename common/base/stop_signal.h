// Hears the signals that ask a program to end, in a thread of its own.
//
// Place: every program makes one in main, before it starts a thread: tasks
// through proto/task/task_main.h, the launcher in deploy/launcher/job_run.h. A
// program polls first() and count(), or has itself called by OnStop.
//
// The signals are blocked in the thread that makes it and in all that are
// started later, so that none of them can take one. A signal that comes before
// anybody asks waits here.
//
// Threads: safe, but made and destroyed by one thread.
#ifndef COMMON_BASE_STOP_SIGNAL_H_
#define COMMON_BASE_STOP_SIGNAL_H_

#include <signal.h>

#include <atomic>
#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/threads/thread.h"

namespace weir {

class StopSignal {
 public:
  using Callback = std::function<void(int signal)>;

  // Listens to `signals`. `on_repeat`, if there is one, is called for every
  // signal after the first.
  // REQUIRES: no other thread exists that leaves `signals` unblocked.
  explicit StopSignal(const std::vector<int>& signals, Callback on_repeat = {});
  // Gives the signals the effect again that they had before.
  ~StopSignal();

  // The first signal that came; 0 before one did.
  int first() const { return first_; }
  // How many came.
  int count() const { return count_; }

  // Has `on_stop` called with the first signal, now if that has come already.
  // It replaces an earlier callback, which is not under way any more when this
  // returns. An empty one only takes the earlier one away.
  void OnStop(Callback on_stop);

 private:
  void Listen();

  const Callback on_repeat_;
  sigset_t signals_;  // those listened to, and SIGUSR1, which ends the thread
  sigset_t before_;
  std::atomic<int> first_{0};
  std::atomic<int> count_{0};
  std::atomic<bool> ending_{false};
  Mutex mutex_;
  Callback on_stop_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace weir

#endif  // COMMON_BASE_STOP_SIGNAL_H_
