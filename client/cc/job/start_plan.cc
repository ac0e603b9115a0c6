#include "client/cc/job/start_plan.h"

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"

namespace weir {

StartPlan PlanStart(const std::string& job,
                    const std::vector<std::string>& names,
                    const std::vector<HelloReply>& replies) {
  // I2: nothing is read here but the arguments.
  StartPlan plan;
  int active = -1;  // some ACTIVE shard
  for (size_t s = 0; s < replies.size(); ++s) {
    // A foreign shard outweighs everything else: also one of another job that
    // is only LOADED is about to be trained by somebody.
    if (replies[s].state() != EMPTY && !job.empty() &&
        replies[s].job() != job) {
      plan.kind = StartPlan::Kind::kRefuse;
      plan.status = absl::FailedPreconditionError(absl::StrCat(
          names[s], " holds a shard of job '", Printable(replies[s].job()),
          "', not of '", job, "': wait until that job has ended, or give this ",
          "job other ps"));
      return plan;
    }
    if (replies[s].state() == ACTIVE) {
      active = static_cast<int>(s);
    }
  }
  // Nobody can push to a shard before it is ACTIVE, so what is LOADED is what a
  // chief left half-way, and may be loaded again.
  if (active < 0) {
    return plan;
  }
  // I1: from here on the outcome is never kLoad.
  plan.kind = StartPlan::Kind::kAdopt;
  for (size_t s = 0; s < replies.size(); ++s) {
    const HelloReply& reply = replies[s];
    const bool ours = reply.state() != EMPTY &&
                      reply.history() == replies[active].history() &&
                      reply.shard() == s &&
                      reply.shard_count() == replies.size();
    if (!ours) {
      std::string what = " was restarted and has lost its shard";
      auto code = absl::StatusCode::kFailedPrecondition;
      if (reply.state() != EMPTY) {
        what = absl::StrCat(" holds shard ", reply.shard(), " of ",
                            reply.shard_count());
        if (reply.history() == replies[active].history()) {
          code = absl::StatusCode::kInvalidArgument;  // nothing is lost
        } else {
          absl::StrAppend(&what, " of another history");
        }
      }
      plan.kind = StartPlan::Kind::kReplace;
      plan.status =
          absl::Status(code, absl::StrCat(names[s], what, " while ",
                                          names[active], " is in training"));
      return plan;
    }
  }
  return plan;
}

}  // namespace weir
