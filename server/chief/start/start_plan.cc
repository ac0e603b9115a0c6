#include "server/chief/start/start_plan.h"

#include "absl/strings/str_cat.h"

namespace weir {

StartPlan PlanStart(const std::string& job,
                    const std::vector<std::string>& names,
                    const std::vector<HelloReply>& replies) {
  StartPlan plan;
  int active = -1;  // some ACTIVE shard
  for (size_t s = 0; s < replies.size(); ++s) {
    if (replies[s].state() != EMPTY && !job.empty() &&
        replies[s].job() != job) {
      plan.kind = StartPlan::Kind::kRefuse;
      plan.status = absl::FailedPreconditionError(absl::StrCat(
          names[s], " holds a shard of job '", replies[s].job(), "', not of '",
          job, "': wait until that job has ended, or give this ",
          "job other ps"));
      return plan;
    }
    if (replies[s].state() == ACTIVE) {
      active = static_cast<int>(s);
    }
  }
  if (active < 0) {
    return plan;
  }
  plan.kind = StartPlan::Kind::kAdopt;
  for (size_t s = 0; s < replies.size(); ++s) {
    const HelloReply& reply = replies[s];
    const bool ours = reply.state() != EMPTY &&
                      reply.history() == replies[active].history() &&
                      reply.shard() == s &&
                      reply.shard_count() == replies.size();
    if (!ours) {
      plan.kind = StartPlan::Kind::kReplace;
      plan.status = absl::FailedPreconditionError(absl::StrCat(
          names[s],
          reply.state() == EMPTY
              ? " was restarted and has lost its shard"
              : absl::StrCat(" holds shard ", reply.shard(), " of ",
                             reply.shard_count(), " of another history"),
          " while ", names[active], " is in training"));
      return plan;
    }
  }
  return plan;
}

}  // namespace weir
