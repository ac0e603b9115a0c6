// Matrix products and convolutions of the CPU backend, by oneDNN.
//
// Place: CpuBackend owns one. Primitives are made once per shape and kept: a
// job has few shapes. Convolutions let oneDNN choose the kernel's layout, so
// kernels (small, changed every step) are reordered on each call; images are
// channels-last on both sides and never are.
//
// Invariants
//   I1. Steady state allocates nothing: scratch memory grows to the largest
//       primitive's and stays.
//   I2. The thread count is the constructor's in every call: Debian's oneDNN
//       asks OpenMP, whose setting is the calling thread's own.
// Threads: compatible.
// Errors: INTERNAL  oneDNN refused; names the operation.
#ifndef WORKER_COMPUTE_CPU_DNNL_OPS_H_
#define WORKER_COMPUTE_CPU_DNNL_OPS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/compute/backend.h"

namespace weir {

class DnnlOps {
 public:
  static absl::StatusOr<std::unique_ptr<DnnlOps>> Create(int threads);
  ~DnnlOps();

  // Arguments as in Backend.
  absl::Status MatMul(const MatMulShape& shape, const float* a, const float* b,
                      const float* bias, float* c);
  absl::Status Conv2dForward(const Conv2dShape& shape, const float* x,
                             const float* kernel, const float* bias, float* y);
  absl::Status Conv2dBackwardData(const Conv2dShape& shape, const float* dy,
                                  const float* kernel, float* dx);
  absl::Status Conv2dBackwardKernel(const Conv2dShape& shape, const float* x,
                                    const float* dy, float* dkernel,
                                    float* dbias);

 private:
  struct State;  // keeps dnnl.hpp out of every other file
  explicit DnnlOps(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace weir

#endif  // WORKER_COMPUTE_CPU_DNNL_OPS_H_
