// Adadelta, in PyTorch's dialect.
//
//   g = g + weight_decay w
//   s = rho s + (1 - rho) g g
//   u = sqrt(d + epsilon) / sqrt(s + epsilon) g
//   d = rho d + (1 - rho) u u
//   w = w - lr u
// State: "square_avg" (s), "acc_delta" (d), from 0.
// Source: Zeiler, arXiv 1212.5701, algorithm 1; torch.optim.Adadelta.
#ifndef SERVER_PS_OPTIMIZER_ADADELTA_H_
#define SERVER_PS_OPTIMIZER_ADADELTA_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/ps/optimizer/optimizer.h"

namespace weir {

absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdadelta(
    const Adadelta& spec, const std::string& path);

}  // namespace weir

#endif  // SERVER_PS_OPTIMIZER_ADADELTA_H_
