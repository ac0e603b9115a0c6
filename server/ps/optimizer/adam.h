// Adam and AdamW, with AMSGrad as an option, in PyTorch's dialect.
//
//   Adam:  g = g + weight_decay w          AdamW: w = (1 - lr weight_decay) w
//   m = beta1 m + (1 - beta1) g
//   v = beta2 v + (1 - beta2) g g
//   x = amsgrad ? (v_max = max(v_max, v)) : v
//   w = w - lr / (1 - beta1^(t+1)) m / (sqrt(x) / sqrt(1 - beta2^(t+1)) + eps)
// State: "m", "v" and, for amsgrad, "v_max", all from 0.
// Source: Kingma and Ba, ICLR 2015, algorithm 1; Loshchilov and Hutter, ICLR
//         2019, algorithm 2; Reddi et al., ICLR 2018, algorithm 2 (with
//         PyTorch's maximum of the uncorrected v).
#ifndef SERVER_PS_OPTIMIZER_ADAM_H_
#define SERVER_PS_OPTIMIZER_ADAM_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/ps/optimizer/optimizer.h"

namespace weir {

absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdam(const Adam& spec,
                                                      const std::string& path);
absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdamW(const AdamW& spec,
                                                       const std::string& path);

}  // namespace weir

#endif  // SERVER_PS_OPTIMIZER_ADAM_H_
