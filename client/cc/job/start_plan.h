// Decides what whoever makes a job does at its start, from what every shard
// says of itself. The cases are a table in "Adopting shards" in
// docs/design_notes.md.
//
// Place: the chief asks once, when every shard has answered, and so does worker
// 0 of an SDK job without a chief.
//
// Invariants
//   I1. A shard that is ACTIVE is never declared again.
//   I2. The outcome depends on the arguments alone.
#ifndef CLIENT_CC_JOB_START_PLAN_H_
#define CLIENT_CC_JOB_START_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/ps.pb.h"

namespace weir {

struct StartPlan {
  enum class Kind {
    kLoad,     // nothing is in training here: declare or restore
    kAdopt,    // the job is in training: take it over
    kReplace,  // some shard is lost, or the cluster is another one: restore
               // all of them, or give up
    kRefuse,   // a shard belongs to another job
  };
  Kind kind = Kind::kLoad;
  // kReplace, kRefuse: why; names the shard. INVALID_ARGUMENT if no shard is
  // lost, but they are another number of ps or in another order.
  absl::Status status;
};

// `names` and `replies` are by shard. `job` is the job that starts, or "" while
// that is not known.
StartPlan PlanStart(const std::string& job,
                    const std::vector<std::string>& names,
                    const std::vector<HelloReply>& replies);

}  // namespace weir

#endif  // CLIENT_CC_JOB_START_PLAN_H_
