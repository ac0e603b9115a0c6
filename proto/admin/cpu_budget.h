// Decides how long a thread pauses so that it takes a small share of a core.
//
// Place: the admin port's thread asks it after every round of work. It has no
// clock of its own: the caller tells it what time it is and what it has used.
//
// Terms
//   share   of a core, in the long run.
//   burst   what may be used at once after a rest.
//
// Invariants
//   I1. Between two calls of PauseNs that are a time t apart, a caller that
//       pauses as it is told uses at most share * t + burst, and one round.
// Threads: compatible.
#ifndef PROTO_ADMIN_CPU_BUDGET_H_
#define PROTO_ADMIN_CPU_BUDGET_H_

#include <cstdint>

namespace weir {

class CpuBudget {
 public:
  // REQUIRES: 0 < share <= 1.
  CpuBudget(double share, int64_t burst_ns)
      : share_(share),
        burst_ns_(static_cast<double>(burst_ns)),
        left_ns_(burst_ns_) {}

  // Returns how long the caller must pause, 0 if it may go on. Both times only
  // ever rise: `cpu_ns` is what the thread has used, `now_ns` the clock's.
  int64_t PauseNs(int64_t cpu_ns, int64_t now_ns);

 private:
  const double share_;
  const double burst_ns_;
  double left_ns_;
  bool begun_ = false;
  int64_t cpu_ns_ = 0;
  int64_t now_ns_ = 0;
};

}  // namespace weir

#endif  // PROTO_ADMIN_CPU_BUDGET_H_
