// Makes the chief's calls to one shard, in order, and reports each answer.
//
// Place: chief_runner.cc has one for each shard. A Snapshot runs beside the
// other calls: in sync it is asked for long before its version is reached.
//
// Hello is tried once, since JobState measures the silence. Snapshot and
// Shutdown are tried once, too. The other calls are repeated with the same
// identity after the codes of retry_policy.h until `lost_after` is over.
//
// Threads: Call is safe and never blocks; reports come on threads of its own.
#ifndef SERVER_CHIEF_SHARD_CALLER_H_
#define SERVER_CHIEF_SHARD_CALLER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cc/transport/transport.h"
#include "server/chief/files/task_queue.h"
#include "server/chief/job_state.h"
#include "server/chief/start/initial_values.h"
#include "server/chief/state/actions.h"

namespace weir {

class ShardCaller {
 public:
  struct Options {
    int shard = 0;
    std::shared_ptr<ControlLink> link;
    std::chrono::milliseconds lost_after{10000};
    std::shared_ptr<const InitialValues> initial;  // may be null
    // Runs the closure on the chief's decision thread. A call that is left
    // behind may use it after this object is gone.
    std::function<void(std::function<void(JobState*)>)> report;
  };

  explicit ShardCaller(Options options)
      : options_(std::make_shared<const Options>(std::move(options))),
        queue_(absl::StrCat("calls to ps ", options_->shard)) {}

  void Call(ShardCall call);

 private:
  const std::shared_ptr<const Options> options_;
  TaskQueue queue_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_SHARD_CALLER_H_
