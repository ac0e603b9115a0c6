// Measures where the time between two pushes of a program went.
//
// Place: a Session has one; the Phases that it makes travel to the chief. What
// is neither a wait nor a hold is the program's own and counts as compute.
//
// Threads: compatible.
#ifndef CLIENT_CC_SDK_STEP_PHASES_H_
#define CLIENT_CC_SDK_STEP_PHASES_H_

#include <cstdint>
#include <utility>

#include "common/base/clock.h"
#include "proto/chief.pb.h"

namespace weir::sdk {

class StepPhases {
 public:
  enum Wait { kPull = 0, kPush = 1, kHold = 2 };

  // Calls `function` and counts the time it takes. Waits do not nest.
  template <typename Function>
  auto Timed(Wait wait, const Function& function) {
    const int64_t begin_ns = Clock::Real()->NowNs();
    auto result = function();
    waited_ns_[wait] += Clock::Real()->NowNs() - begin_ns;
    return result;
  }

  // Ends the step of a push that is acknowledged, and begins the next one.
  Phases End() {
    const int64_t now_ns = Clock::Real()->NowNs();
    const int64_t step_ns =
        now_ns - std::exchange(begin_ns_, now_ns) - waited_ns_[kHold];
    Phases phases;
    phases.set_contributions(1);
    phases.set_step_ns(step_ns);
    phases.set_pull_wait_ns(waited_ns_[kPull]);
    phases.set_push_wait_ns(waited_ns_[kPush]);
    phases.set_hold_ns(waited_ns_[kHold]);
    phases.set_compute_ns(step_ns - waited_ns_[kPull] - waited_ns_[kPush]);
    waited_ns_[kPull] = waited_ns_[kPush] = waited_ns_[kHold] = 0;
    return phases;
  }

 private:
  int64_t begin_ns_ = Clock::Real()->NowNs();
  int64_t waited_ns_[3] = {};  // by Wait
};

}  // namespace weir::sdk

#endif  // CLIENT_CC_SDK_STEP_PHASES_H_
