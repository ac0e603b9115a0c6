// Stochastic gradient descent with optional momentum, dampening, Nesterov's
// look-ahead and L2 weight decay, in PyTorch's dialect.
//
//   d = g + weight_decay w
//   b = d at t = 0, else momentum b + (1 - dampening) d     (momentum != 0)
//   d = nesterov ? d + momentum b : b                       (momentum != 0)
//   w = w - lr d
// State: "momentum" (b) when momentum != 0, else none.
// Source: Polyak 1964; Sutskever et al., ICML 2013; torch.optim.SGD.
#ifndef SERVER_PS_OPTIMIZER_SGD_H_
#define SERVER_PS_OPTIMIZER_SGD_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/ps/optimizer/optimizer.h"

namespace weir {

absl::StatusOr<std::unique_ptr<Optimizer>> CreateSgd(const Sgd& spec,
                                                     const std::string& path);

}  // namespace weir

#endif  // SERVER_PS_OPTIMIZER_SGD_H_
