// Sums of Phases (proto/chief.proto): what their fields mean together.
//
// Place: whoever adds up contributions: the worker's heartbeat and metrics, the
// chief's totals and its report. What is a state and no sum, the caller takes.
//
// Threads: safe.
#ifndef PROTO_WIRE_PHASE_SUMS_H_
#define PROTO_WIRE_PHASE_SUMS_H_

#include "proto/chief.pb.h"

namespace weir {

// Adds the number of contributions and all their times.
inline void AddPhaseTimes(const Phases& more, Phases* sum) {
  sum->set_contributions(sum->contributions() + more.contributions());
  sum->set_step_ns(sum->step_ns() + more.step_ns());
  sum->set_data_wait_ns(sum->data_wait_ns() + more.data_wait_ns());
  sum->set_pull_wait_ns(sum->pull_wait_ns() + more.pull_wait_ns());
  sum->set_push_wait_ns(sum->push_wait_ns() + more.push_wait_ns());
  sum->set_compute_ns(sum->compute_ns() + more.compute_ns());
  sum->set_hold_ns(sum->hold_ns() + more.hold_ns());
}

}  // namespace weir

#endif  // PROTO_WIRE_PHASE_SUMS_H_
