// Convolutions by cuDNN, where it has an algorithm that keeps the contract.
//
// Place: CudaBackend's way in fp32 and tf32 on a machine that has cuDNN.
//
// Terms
//   plan  what cuDNN's heuristics advise for one operation of one shape, and
//         its descriptors: made at the first call, kept, as a job has few.
//
// Invariants
//   I1. An algorithm is taken only if it adds products without a transform, its
//       workspace is at most workspace_bytes_max, in fp32 its arithmetic is
//       plain float32, and where `deterministic` it gives the same bits always.
//   I2. Where there is none, or cuDNN refuses while it is asked, the log says
//       so once and Weir's own way computes that operation of that shape.
//   I3. A call whose plan was made allocates nothing, so it can be captured.
// Threads: compatible.
// Errors: INTERNAL  cuDNN failed to run a plan; names operation and shape.
//         others    those of Convolution.
// Cost: the kernel is transposed at every call. Bias is a pass of its own.
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
#include "worker/compute/shapes.h"

namespace weir::cuda {

class CudnnConvolution : public Convolutions {
 public:
  // As much as Weir's own way takes for columns.
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

  absl::Status Forward(cudaStream_t stream, const Conv2dShape& shape,
                       const float* x, const float* kernel, const float* bias,
                       float* y) override;
  absl::Status BackwardData(cudaStream_t stream, const Conv2dShape& shape,
                            const float* dy, const float* kernel,
                            float* dx) override;
  absl::Status BackwardKernel(cudaStream_t stream, const Conv2dShape& shape,
                              const float* x, const float* dy,
                              float* dkernel) override;
  int64_t scratch_bytes() const override {
    return kernel_.bytes() + workspace_.bytes() + options_.own->scratch_bytes();
  }

 private:
  enum class Operation : int { kForward, kBackwardData, kBackwardKernel };
  struct Plan;
  // The operation and the shape's members.
  using Key = std::array<int64_t, 9>;

  explicit CudnnConvolution(const Options& options);

  // OK, or INTERNAL "<what>: <cuDNN's text>".
  absl::Status Check(int status, const char* what) const;
  // Null where Weir's own way computes it.
  const Plan* FindPlan(Operation operation, const Conv2dShape& shape);
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(Operation operation,
                                                 const Conv2dShape& shape);
  absl::Status Describe(const Conv2dShape& shape, Plan* plan) const;
  // Takes the first advice that I1 allows.
  absl::Status Choose(Operation operation, Plan* plan);
  bool Allows(Operation operation, const CudnnAdvice& advice) const;
  // The workspace of an algorithm under the plan's arithmetic.
  absl::StatusOr<int64_t> WorkspaceBytes(Operation operation, const Plan& plan,
                                         int algorithm) const;

  absl::Status UseStream(cudaStream_t stream);
  // Scratch for a kernel as cuDNN has it: [filters, kernel, kernel, channels].
  absl::StatusOr<float*> KernelScratch(const Conv2dShape& shape);
  absl::StatusOr<const float*> ChannelsLastKernel(cudaStream_t stream,
                                                  const Conv2dShape& shape,
                                                  const float* kernel);

  const Options options_;
  CudnnContext* context_ = nullptr;
  cudaStream_t stream_ = nullptr;
  DeviceScratch kernel_;
  DeviceScratch workspace_;
  std::map<Key, std::unique_ptr<Plan>> plans_;  // null: own way
};

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_CUDNN_CONVOLUTION_H_
