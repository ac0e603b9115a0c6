// A job that an earlier chief brought to its end: tells every task that asks.
//
// Place: chief_runner.cc makes one in place of training when DONE is there.
// The chief before may have died before every task knew, or somebody started
// all tasks once more.
//
//   workers   Register is answered with `over`, code 0
//   ps        a ps that holds this job, or nothing, gets Shutdown
//
// It ends when every worker and every ps of the cluster was told, or after
// `wait`.
//
// Threads: safe; one thread of its own calls the ps.
// Owns/borrows: borrows the transport.
#ifndef SERVER_CHIEF_START_FINISHED_JOB_H_
#define SERVER_CHIEF_START_FINISHED_JOB_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/cc/transport/transport.h"
#include "common/base/mutex.h"
#include "proto/chief.pb.h"

namespace weir {

class FinishedJob {
 public:
  struct Options {
    std::string job;
    std::vector<std::string> ps_addresses;
    int worker_count = 1;
    std::string chief_secret;  // the work directory's
    Transport* transport = nullptr;
    std::chrono::milliseconds wait{10000};
    // Called once, on a thread of its own, when it ends.
    std::function<void()> on_end;
  };

  explicit FinishedJob(Options options);
  ~FinishedJob();

  RegisterReply Register(const RegisterRequest& request);
  // Stops waiting for tasks that were not told yet.
  void Leave();

 private:
  void Run();
  // Tells ps `s`. Returns true if it was told, or if this chief may not end it.
  bool ShutDown(size_t s) const;
  bool AllTold() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const std::vector<std::unique_ptr<ControlLink>> links_;

  Mutex mutex_;
  CondVar changed_;
  std::vector<bool> workers_told_ ABSL_GUARDED_BY(mutex_);
  bool leave_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_START_FINISHED_JOB_H_
