// The functions of NCCL that Weir calls, over the emulated machine: sums of
// float32 on the streams of several devices, in one process.
//
// Place: CudaBackend::Options.nccl takes FakeNccl().
//
// Invariants
//   I1. A sum runs when every device's stream has come to it. By a coin the
//       others' streams are held until it ran, and it reads their memory then;
//       or they go on at once, and it has what they held when they came.
//   I2. Parts are added in a random order.
//   I3. A device that does not take part, another count or root, or a sum of
//       several devices outside a group would hang NCCL: the process ends.
//   I4. After an error inside a group its end gives that error and runs none of
//       it.
// Errors: weir_emulator::FailNext takes the names of NCCL's functions, and
//   turns any error into ncclUnhandledCudaError.
#ifndef TESTS_WORKER_COMPUTE_CUDA_EMULATOR_FAKE_NCCL_H_
#define TESTS_WORKER_COMPUTE_CUDA_EMULATOR_FAKE_NCCL_H_

#include <cstdint>
#include <vector>

#include "worker/compute/cuda/nccl_api.h"

namespace weir_emulator {

inline constexpr int kNcclUnhandledCudaError = 1;
inline constexpr int kNcclInvalidArgument = 4;
inline constexpr int kNcclInvalidUsage = 5;

struct NcclCounts {
  std::vector<std::vector<int>> cliques;  // devices, of each that was made
  int64_t sums = 0;                       // enqueued
  int64_t aborted = 0;                    // communicators
  int64_t open = 0;                       // communicators, whenever made
};
NcclCounts CountNccl();

// Counts begin at 0; no group is open.
void ResetNccl();

const weir::cuda::NcclApi& FakeNccl();

}  // namespace weir_emulator

#endif  // TESTS_WORKER_COMPUTE_CUDA_EMULATOR_FAKE_NCCL_H_
