// Adagrad, in PyTorch's dialect.
//
//   g = g + weight_decay w
//   s = s + g g
//   w = w - lr / (1 + t lr_decay) g / (sqrt(s) + epsilon)
// State: "sum" (s), from initial_accumulator.
// Source: Duchi, Hazan, Singer, JMLR 2011, figure 1 (diagonal);
//         torch.optim.Adagrad.
#ifndef SERVER_PS_OPTIMIZER_ADAGRAD_H_
#define SERVER_PS_OPTIMIZER_ADAGRAD_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/ps/optimizer/optimizer.h"

namespace weir {

absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdagrad(
    const Adagrad& spec, const std::string& path);

}  // namespace weir

#endif  // SERVER_PS_OPTIMIZER_ADAGRAD_H_
