// The functions of cuDNN that Weir calls, over the emulated machine: graphs of
// one convolution, with a bias or without, whose tensors have their channels
// last, on streams. It refuses what it does not do, as cuDNN refuses.
//
// Place: CudaBackend::Options.cudnn takes FakeCudnn().
//
// Invariants
//   I1. An engine that is not deterministic gives other bits each time.
//   I2. An engine with tensor cores rounds float32 factors to TF32.
//   I3. A workspace is overwritten with garbage.
//   I4. An engine of `operations` takes as long as so many others.
// Errors: weir_emulator::FailNext takes the names of cuDNN's functions, and
//   turns any error into CUDNN_STATUS_EXECUTION_FAILED.
#ifndef TESTS_WORKER_COMPUTE_CUDA_EMULATOR_FAKE_CUDNN_H_
#define TESTS_WORKER_COMPUTE_CUDA_EMULATOR_FAKE_CUDNN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/compute/cuda/cudnn_api.h"

namespace weir_emulator {

inline constexpr int kCudnnBadParam = 2000;
inline constexpr int kCudnnNotSupported = 3000;
inline constexpr int kCudnnExecutionFailed = 5000;

// One engine for every operation and shape. It supports what is true or absent
// here.
struct FakeEngine {
  int64_t index = 0;
  std::vector<int> notes = {};
  int64_t workspace_bytes = 0;
  int operations = 1;
  bool plans = true;                      // else no plan can be made of it
  bool runs = true;                       // else a plan does not run
  std::optional<bool> bf16_factors = {};  // only these
  std::optional<bool> bf16_result = {};   // only this
  std::optional<bool> bias = {};          // only with or without
};

// Sets what the heuristics advise from now on, and what they fall back to.
// Counts begin at 0.
void ConfigureCudnn(std::vector<FakeEngine> advised,
                    std::vector<FakeEngine> fallback = {});

struct CudnnCounts {
  int64_t asked = 0;             // the heuristics, for one of the two lists
  int64_t plans = 0;             // that could be made
  int64_t runs = 0;              // graphs that were enqueued or captured
  int64_t open = 0;              // contexts and descriptors, whenever made
  std::vector<int64_t> engines;  // of the runs
};
CudnnCounts CountCudnn();

const weir::cuda::CudnnApi& FakeCudnn();

}  // namespace weir_emulator

#endif  // TESTS_WORKER_COMPUTE_CUDA_EMULATOR_FAKE_CUDNN_H_
