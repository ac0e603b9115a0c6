// The functions of cuDNN that Weir calls, over the emulated machine: NHWC
// float32 convolutions on streams. It refuses what it does not do, as cuDNN
// refuses.
//
// Place: CudaBackend::Options.cudnn takes FakeCudnn().
//
// Terms
//   rounds  an algorithm rounds its factors to TF32. Its advice says tensor
//           operations, or default math, which permits them.
//
// Invariants
//   I1. An algorithm that is not deterministic gives other bits each time.
//   I2. An algorithm that says tensor operations is NOT_SUPPORTED under FMA
//       math. One that says default math does not round under it.
//   I3. A workspace is overwritten with garbage. One that is too small is
//       refused.
// Errors: weir_emulator::FailNext takes the names of cuDNN's functions, and
//   turns any error into CUDNN_STATUS_EXECUTION_FAILED.
#ifndef TESTS_WORKER_COMPUTE_CUDA_EMULATOR_FAKE_CUDNN_H_
#define TESTS_WORKER_COMPUTE_CUDA_EMULATOR_FAKE_CUDNN_H_

#include <cstdint>
#include <vector>

#include "worker/compute/cuda/cudnn_api.h"

namespace weir_emulator {

inline constexpr int kCudnnBadParam = 2000;
inline constexpr int kCudnnNotSupported = 3000;
inline constexpr int kCudnnExecutionFailed = 5000;

// Deterministic, in float32, without a workspace.
weir::cuda::CudnnAdvice PlainAdvice(int algorithm);

// Sets the advice of the heuristics for every operation and shape from now on.
// Counts begin at 0.
void ConfigureCudnn(std::vector<weir::cuda::CudnnAdvice> advice);

struct CudnnCounts {
  int64_t advised = 0;          // calls of the heuristics
  int64_t runs = 0;             // convolutions that were enqueued or captured
  int64_t open = 0;             // contexts and descriptors, whenever made
  std::vector<int> algorithms;  // of the runs
};
CudnnCounts CountCudnn();

const weir::cuda::CudnnApi& FakeCudnn();

}  // namespace weir_emulator

#endif  // TESTS_WORKER_COMPUTE_CUDA_EMULATOR_FAKE_CUDNN_H_
