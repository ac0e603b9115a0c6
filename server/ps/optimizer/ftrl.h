// FTRL-Proximal, in TensorFlow's dialect (PyTorch has none).
//
//   p  = -learning_rate_power                      (0.5 by default)
//   n' = n + g g
//   z  = z + g + 2 l2_shrinkage w - (n'^p - n^p) / lr w
//   w  = |z| > l1 ? (sign(z) l1 - z) / (n'^p / lr + 2 (l2 + beta / (2 lr))) : 0
//   n  = n'
// A learning rate of 0 changes nothing at all (the equations divide by it).
// State: "accumulator" (n) from initial_accumulator, "linear" (z) from 0.
// As in TensorFlow, a value before its first step is not in z: with l1 = 0
// and g = 0 the first step keeps it only in part.
// Source: McMahan et al., KDD 2013, algorithm 1; TensorFlow,
//         core/kernels/training_ops.cc, ApplyFtrlV2; Keras's beta.
#ifndef SERVER_PS_OPTIMIZER_FTRL_H_
#define SERVER_PS_OPTIMIZER_FTRL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/ps/optimizer/optimizer.h"

namespace weir {

absl::StatusOr<std::unique_ptr<Optimizer>> CreateFtrl(const Ftrl& spec,
                                                      const std::string& path);

}  // namespace weir

#endif  // SERVER_PS_OPTIMIZER_FTRL_H_
