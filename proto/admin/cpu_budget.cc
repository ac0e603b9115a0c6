#include "proto/admin/cpu_budget.h"

#include <algorithm>

namespace weir {

// Keeps I1: what comes in by time is never more than a burst ahead of what goes
// out by use.
int64_t CpuBudget::PauseNs(int64_t cpu_ns, int64_t now_ns) {
  if (begun_) {
    left_ns_ += static_cast<double>(now_ns - now_ns_) * share_;
    left_ns_ = std::min(left_ns_, burst_ns_);
    left_ns_ -= static_cast<double>(cpu_ns - cpu_ns_);
  }
  begun_ = true;
  cpu_ns_ = cpu_ns;
  now_ns_ = now_ns;
  return left_ns_ >= 0 ? 0 : static_cast<int64_t>(-left_ns_ / share_);
}

}  // namespace weir
