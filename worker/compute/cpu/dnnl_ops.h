// Matrix products and convolutions of the CPU backend, by oneDNN.
//
// Place: CpuBackend owns one. It makes a primitive once for each shape and
// keeps it, since a job has few shapes. oneDNN chooses the layout of a
// convolution's kernel. Kernels are small and change every step, so each call
// reorders them; images are channels-last on both sides and are never
// reordered.
//
// Invariants
//   I1. A call whose shape is known allocates nothing: scratch memory grows to
//       what the largest primitive needs, and stays.
//   I2. Every call runs with the constructor's thread count. Debian's oneDNN
//       asks OpenMP for it, whose setting belongs to the calling thread.
// Threads: compatible.
// Errors: INTERNAL            oneDNN refused; names the operation.
//         RESOURCE_EXHAUSTED  there is no memory for scratch or a primitive.
#ifndef WORKER_COMPUTE_CPU_DNNL_OPS_H_
#define WORKER_COMPUTE_CPU_DNNL_OPS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/compute/operations.h"

namespace weir {

class DnnlOps {
 public:
  static absl::StatusOr<std::unique_ptr<DnnlOps>> Create(int threads);
  ~DnnlOps();

  absl::Status Run(const op::MatMul& o);
  absl::Status Run(const op::Conv2dForward& o);
  absl::Status Run(const op::Conv2dBackwardData& o);
  absl::Status Run(const op::Conv2dBackwardKernel& o);

 private:
  struct State;  // keeps dnnl.hpp out of every other file
  explicit DnnlOps(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace weir

#endif  // WORKER_COMPUTE_CPU_DNNL_OPS_H_
