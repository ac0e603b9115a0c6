// Runs functions on one thread of its own, in order.
//
// Place: parameter_service.cc has some, for what would keep a handler's thread
// busy: Declare and Restore, the files of snapshots, long reports.
// Work that finds no memory is left where it is, and the next is done; who
// waits for an answer must catch that in the work.
// Threads: safe.
#ifndef SERVER_PS_STORE_WORK_THREAD_H_
#define SERVER_PS_STORE_WORK_THREAD_H_

#include <deque>
#include <functional>

#include "common/base/mutex.h"
#include "common/threads/thread.h"

namespace weir {

class WorkThread {
 public:
  WorkThread();
  // Runs what is queued, then ends.
  ~WorkThread();

  // An empty `work` ends the thread after what was queued before it.
  void Run(std::function<void()> work);

 private:
  std::function<void()> Next();
  void Loop();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;  // last: uses all of the above
};

}  // namespace weir

#endif  // SERVER_PS_STORE_WORK_THREAD_H_
