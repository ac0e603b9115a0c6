// Carries out the chief's calls to one shard, in order, and reports each.
//
// Place: chief_runner.cc has one for each shard. A Snapshot runs beside the
// other calls: in sync it is asked for long before its version is reached.
//
// Hello is tried once: JobState counts the silence. The other calls are
// repeated after UNAVAILABLE and DEADLINE_EXCEEDED, same identity, until
// `lost_after`. Shutdown is tried once, briefly.
//
// Threads: Call is safe and never blocks; reports come on threads of its own.
#ifndef SERVER_CHIEF_SHARD_CALLER_H_
#define SERVER_CHIEF_SHARD_CALLER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

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
    std::shared_ptr<ShardLink> link;
    std::chrono::milliseconds lost_after{10000};
    std::shared_ptr<const InitialValues> initial;  // may be null
    // Runs the closure on the chief's thread; safe for ever.
    std::function<void(std::function<void(JobState*)>)> report;
  };

  explicit ShardCaller(Options options)
      : options_(std::make_shared<const Options>(std::move(options))) {}

  void Call(ShardCall call);

 private:
  const std::shared_ptr<const Options> options_;
  TaskQueue queue_;
};

}  // namespace weir

#endif  // SERVER_CHIEF_SHARD_CALLER_H_
