// Convolutions by cuDNN, where it has an algorithm that keeps the contract.
//
// Place: CudaBackend computes with it in fp32 and tf32 on a machine with cuDNN.
//
// Terms
//   plan  the algorithm that cuDNN's heuristics advise for one operation of one
//         shape, and its descriptors. It is made at the first call and kept,
//         since a job has few shapes.
//
// Invariants
//   I1. An algorithm is taken only if it adds products without a transform, its
//       workspace is at most workspace_bytes_max, in fp32 its arithmetic is
//       plain float32, and where `deterministic` it gives the same bits always.
//   I2. Where there is no such algorithm, or cuDNN fails while it is asked, the
//       log says so once and Weir's own implementation computes that operation
//       of that shape.
//   I3. A call whose plan was made allocates nothing, so it can be captured.
// Threads: compatible.
// Errors: INTERNAL  cuDNN failed to run a plan; names operation and shape.
//         others    those of Convolution.
// Cost: every call transposes the kernel, and adds a bias in a pass of its own.
#ifndef WORKER_COMPUTE_CUDA_CUDNN_CONVOLUTION_H_
#define WORKER_COMPUTE_CUDA_CUDNN_CONVOLUTION_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/compute/cuda/convolution.h"
#include "worker/compute/cuda/cudnn_api.h"
#include "worker/compute/cuda/device_memory.h"
#include "worker/compute/operations.h"

namespace weir::cuda {

class CudnnConvolution : public Convolutions {
 public:
  // Weir's own implementation takes as much for columns.
  static constexpr int64_t kWorkspaceBytesMax = Convolution::kColumnBytesMax;

  struct Options {
    CudnnApi api;
    Convolutions* own = nullptr;  // borrowed; computes what cuDNN does not
    bool tf32 = false;            // else fp32
    bool deterministic = false;
    int64_t workspace_bytes_max = kWorkspaceBytesMax;
  };

  // For the current device. Errors: INTERNAL  cuDNN does not start.
  static absl::StatusOr<std::unique_ptr<CudnnConvolution>> Create(
      const Options& options);
  ~CudnnConvolution() override;
  CudnnConvolution(const CudnnConvolution&) = delete;
  CudnnConvolution& operator=(const CudnnConvolution&) = delete;

  absl::Status Run(cudaStream_t stream, const op::Conv2dForward& o) override;
  absl::Status Run(cudaStream_t stream,
                   const op::Conv2dBackwardData& o) override;
  absl::Status Run(cudaStream_t stream,
                   const op::Conv2dBackwardKernel& o) override;
  int64_t scratch_bytes() const override {
    return kernel_.bytes() + workspace_.bytes() + options_.own->scratch_bytes();
  }

 private:
  enum class Operation : int { kForward, kBackwardData, kBackwardKernel };
  struct Plan;
  // The operation and the members of the shape.
  using Key = std::array<int64_t, 9>;

  explicit CudnnConvolution(const Options& options);

  // OK, or INTERNAL "<what>: <cuDNN's text>".
  absl::Status Check(int status, const char* what) const;
  // Returns null where Weir's own implementation computes it.
  const Plan* FindPlan(Operation operation, const Conv2dShape& shape);
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(Operation operation,
                                                 const Conv2dShape& shape);
  absl::Status Describe(const Conv2dShape& shape, Plan* plan) const;
  // Takes the first advice that I1 allows.
  absl::Status Choose(Operation operation, Plan* plan);
  bool Allows(Operation operation, const CudnnAdvice& advice) const;
  // Returns the workspace of an algorithm under the plan's arithmetic, or an
  // error where it cannot compute under that.
  absl::StatusOr<int64_t> WorkspaceBytes(Operation operation, const Plan& plan,
                                         int algorithm) const;

  absl::Status UseStream(cudaStream_t stream);
  // Runs the plan by compute(plan, scratch of the kernel's size, workspace and
  // its bytes), which returns cuDNN's status.
  template <class Op, class Compute>
  absl::Status Run(cudaStream_t stream, Operation operation, const Op& o,
                   Compute compute);

  const Options options_;
  CudnnContext* context_ = nullptr;
  cudaStream_t stream_ = nullptr;
  DeviceScratch kernel_;
  DeviceScratch workspace_;
  // A null plan stands for Weir's own implementation.
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_CUDNN_CONVOLUTION_H_
