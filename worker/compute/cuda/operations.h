// The operations of one GPU: which kernel or library computes each of them, and
// what they keep from call to call.
//
// Place: CudaBackend has one and owns the streams. It says which stream an
// operation goes to; they all go to the same one.
//
// Invariants
//   I1. Once every shape was seen, no operation allocates memory.
// Threads: compatible.
// Errors: INTERNAL  CUDA or a library refused; names the operation.
//         those of AllocateDevice.
#ifndef WORKER_COMPUTE_CUDA_OPERATIONS_H_
#define WORKER_COMPUTE_CUDA_OPERATIONS_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/compute/cuda/bf16_copies.h"
#include "worker/compute/cuda/convolution.h"
#include "worker/compute/cuda/cudnn_api.h"
#include "worker/compute/cuda/cudnn_convolution.h"
#include "worker/compute/cuda/device_memory.h"
#include "worker/compute/cuda/lt_matmul.h"
#include "worker/compute/cuda/nccl_api.h"
#include "worker/compute/operations.h"

namespace weir::cuda {

struct CudaOptions {
  int device = 0;
  Precision precision = Precision::kFp32;
  // See Convolution.
  int64_t column_bytes_max = Convolution::kColumnBytesMax;
  // Leaves out cuDNN's engines that add in any order, and NCCL, which promises
  // no order. Times no engine, since the fastest may be another one the next
  // time. All else here always gives the same bits.
  bool deterministic = false;
  // Empty: kCudnnLibrary, where it is installed. "none": do without.
  std::string cudnn_library = {};
  const CudnnApi* cudnn = nullptr;  // in place of a library, for tests
  std::string choices_file = {};    // see EngineChoices; empty: none
  // Empty: kNcclLibrary, where it is installed. "none": do without.
  std::string nccl_library = {};
  const NcclApi* nccl = nullptr;  // in place of a library, for tests
};

class Operations {
 public:
  // For the current device, which the log calls `device`.
  static absl::StatusOr<std::unique_ptr<Operations>> Create(
      const CudaOptions& options, const std::string& device);

  // Enqueues on `stream`.
  absl::Status Run(cudaStream_t stream, const Operation& operation);
  // As Backend::SetKeys; the copy goes to `stream`.
  absl::Status SetKeys(cudaStream_t stream, std::span<const uint64_t> keys);

  // Makes the bfloat16 copies of [x, x + count), or all of them, stale. To be
  // called for what is written by anything but Run.
  void OnWrite(const float* x, int64_t count);
  void OnWriteAll() { copies_.OnWriteAll(); }
  // Says that [x, x + count) is being released.
  void Forget(const float* x, int64_t count) { copies_.Forget(x, count); }

  int64_t scratch_bytes() const;

 private:
  Operations(const CudaOptions& options, const std::string& device)
      : options_(options), device_(device) {}

  bool bf16() const { return options_.precision == Precision::kBf16; }
  // Returns what convolves, and looks for cuDNN when it is called first.
  Convolutions* Convolver();
  absl::StatusOr<std::unique_ptr<CudnnConvolution>> OpenCudnn();

  absl::Status Enqueue(cudaStream_t stream, const op::MatMul& o);
  absl::Status Enqueue(cudaStream_t stream, const op::Conv2dBackwardKernel& o);
  absl::Status Enqueue(cudaStream_t stream, const op::PoolBackward& o);
  absl::Status Enqueue(cudaStream_t stream, const op::Dropout& o);
  absl::Status Enqueue(cudaStream_t stream, const op::CopyColumns& o);
  template <class Op>
  absl::Status Enqueue(cudaStream_t stream, const Op& o);

  const CudaOptions options_;
  const std::string device_;
  std::unique_ptr<LtMatMul> matmul_;
  Bf16Copies copies_;
  std::unique_ptr<Convolution> own_convolution_;
  std::unique_ptr<CudnnConvolution> cudnn_;  // null without cuDNN
  // own_convolution_ or cudnn_; null until the first convolution.
  Convolutions* convolution_ = nullptr;
  // One scratch serves all sums, which follow each other on the stream.
  DeviceScratch partials_;
  DeviceScratch places_;  // of maxima, for pooling's backward pass
  PinnedWords keys_;
};

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_OPERATIONS_H_
