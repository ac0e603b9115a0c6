// The optimizer of buffers: w = w + rate (s - w), where the contribution brings
// a sample s (a batch's mean, say) in place of a gradient. No state; learning
// rate, weight decay and t do not count.
#ifndef SERVER_PS_OPTIMIZER_MOVING_AVERAGE_H_
#define SERVER_PS_OPTIMIZER_MOVING_AVERAGE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/ps/optimizer/optimizer.h"

namespace weir {

absl::StatusOr<std::unique_ptr<Optimizer>> MakeMovingAverage(
    double rate, const std::string& path);

}  // namespace weir

#endif  // SERVER_PS_OPTIMIZER_MOVING_AVERAGE_H_
