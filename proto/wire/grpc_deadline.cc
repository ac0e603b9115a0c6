#include "proto/wire/grpc_deadline.h"

namespace weir {

gpr_timespec DeadlineAfter(std::chrono::nanoseconds timeout) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(timeout.count(), GPR_TIMESPAN));
}

}  // namespace weir
