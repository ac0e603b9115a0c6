// What a chief does at its start, from what every shard says of itself.
//
// Invariants
//   I1. A shard that is ACTIVE is never declared anew.
//   I2. The outcome is a pure function of the replies.
#ifndef SERVER_CHIEF_START_START_PLAN_H_
#define SERVER_CHIEF_START_START_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/ps.pb.h"

namespace weir {

struct StartPlan {
  enum class Kind {
    kLoad,     // nothing was ever trained here: declare or restore.
    kAdopt,    // a job is under way: take it over.
    kReplace,  // some shard is lost: restore all of them, or give up.
    kRefuse,   // not our shards.
  };
  Kind kind = Kind::kLoad;
  absl::Status status;  // kReplace, kRefuse: why, naming the shard
};

// `names` and `replies` by shard; `job` is ours, "" while it is not known.
StartPlan PlanStart(const std::string& job,
                    const std::vector<std::string>& names,
                    const std::vector<HelloReply>& replies);

}  // namespace weir

#endif  // SERVER_CHIEF_START_START_PLAN_H_
