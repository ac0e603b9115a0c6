// Matrix products by cuBLASLt, row-major, with the bias fused.
//
// Place: CudaBackend and its convolutions call it. It makes a plan (descriptors
// and the algorithm that cuBLASLt advises) once for each shape, input type and
// alignment and keeps it, since a job has few.
//
// Invariants
//   I1. All products use one workspace and one stream, so that the same plan
//       gives the same bits (cuBLAS library, "Results reproducibility").
// Threads: compatible.
// Errors: INTERNAL            cuBLASLt refused; names the product.
//         those of AllocateDevice, for the workspace.
#ifndef WORKER_COMPUTE_CUDA_LT_MATMUL_H_
#define WORKER_COMPUTE_CUDA_LT_MATMUL_H_

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/compute/cuda/device_memory.h"
#include "worker/compute/shapes.h"

namespace weir::cuda {

class LtMatMul {
 public:
  // NVIDIA advises this size for Hopper. Less excludes its best algorithms.
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

  // The factors. C, sums and bias are always float32.
  struct Inputs {
    const void* a = nullptr;
    const void* b = nullptr;
    bool bf16 = false;  // else float32
  };

  static absl::StatusOr<std::unique_ptr<LtMatMul>> Create(bool tf32);
  ~LtMatMul();
  LtMatMul(const LtMatMul&) = delete;
  LtMatMul& operator=(const LtMatMul&) = delete;

  // C [m, n] = op(A) op(B) + bias [n], or += where `accumulate`. `bias` may be
  // null. REQUIRES: not both bias and accumulate.
  absl::Status Run(cudaStream_t stream, const MatMulShape& shape,
                   const Inputs& inputs, const float* bias, float* c,
                   bool accumulate);

 private:
  struct Plan;
  // m, n, k, flags, alignment in bytes.
  using Key = std::array<int64_t, 5>;

  explicit LtMatMul(bool tf32);
  absl::StatusOr<Plan*> FindPlan(const MatMulShape& shape, const Inputs& inputs,
                                 const float* bias, const float* c);
  // Makes the descriptors of the product and of its three matrices.
  absl::Status Describe(const MatMulShape& shape, const Inputs& inputs,
                        const float* bias, Plan* plan) const;
  // Asks cuBLASLt for the algorithm. `alignment`: bytes that divide all
  // addresses of a, b and c.
  absl::Status Choose(const MatMulShape& shape, int64_t alignment,
                      Plan* plan) const;

  const bool tf32_;
  cublasLtHandle_t handle_ = nullptr;
  DeviceScratch workspace_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_LT_MATMUL_H_
