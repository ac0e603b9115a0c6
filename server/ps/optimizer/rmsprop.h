// RMSProp, optionally centered and with momentum, in PyTorch's dialect.
//
//   g = g + weight_decay w
//   s = alpha s + (1 - alpha) g g
//   a = alpha a + (1 - alpha) g                              (centered)
//   r = g / (sqrt(centered ? s - a a : s) + epsilon)
//   momentum > 0:  b = momentum b + r,  w = w - lr b
//   else:          w = w - lr r
// State: "square_avg" (s), then "grad_avg" (a) when centered, then "momentum"
// (b) when momentum > 0, all from 0.
// Source: Tieleman and Hinton, Coursera lecture 6.5, 2012; Graves 2013, eq. 40
//         (centered); torch.optim.RMSprop.
#ifndef SERVER_PS_OPTIMIZER_RMSPROP_H_
#define SERVER_PS_OPTIMIZER_RMSPROP_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/ps/optimizer/optimizer.h"

namespace weir {

absl::StatusOr<std::unique_ptr<Optimizer>> CreateRmsProp(
    const RmsProp& spec, const std::string& path);

}  // namespace weir

#endif  // SERVER_PS_OPTIMIZER_RMSPROP_H_
