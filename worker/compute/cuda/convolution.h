// Convolutions: the interface that CudaBackend calls, and Weir's own
// implementation by matrix products over unfolded images ("im2col").
//
// Place: CudaBackend computes with it in bf16, and where cuDNN is absent or
// refuses (cudnn_convolution.h). It unfolds a batch in parts that fit
// kColumnBytesMax. A 1 x 1 convolution with stride 1 needs no unfolding.
//
// Invariants
//   I1. The bits are the same every time: there are no atomics, and the parts
//       of a batch are added in their order.
// Threads: compatible.
// Errors: those of LtMatMul, and of AllocateDevice for columns.
// Cost: kernel * kernel times the image's bytes are written and read once.
// Source: Chellapilla, Puri, Simard, "High Performance Convolutional Neural
//         Networks for Document Processing", 2006.
#ifndef WORKER_COMPUTE_CUDA_CONVOLUTION_H_
#define WORKER_COMPUTE_CUDA_CONVOLUTION_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/compute/cuda/bf16_copies.h"
#include "worker/compute/cuda/device_memory.h"
#include "worker/compute/cuda/lt_matmul.h"
#include "worker/compute/operations.h"

namespace weir::cuda {

class Convolutions {
 public:
  virtual ~Convolutions() = default;

  // Enqueues on `stream`.
  virtual absl::Status Run(cudaStream_t stream, const op::Conv2dForward& o) = 0;
  virtual absl::Status Run(cudaStream_t stream,
                           const op::Conv2dBackwardData& o) = 0;
  // Leaves dbias to the caller.
  virtual absl::Status Run(cudaStream_t stream,
                           const op::Conv2dBackwardKernel& o) = 0;
  virtual int64_t scratch_bytes() const = 0;
};

class Convolution : public Convolutions {
 public:
  // Enough for products that fill the device. More memory gains nothing.
  static constexpr int64_t kColumnBytesMax = int64_t{256} << 20;

  struct Options {
    LtMatMul* matmul = nullptr;
    Bf16Copies* copies = nullptr;  // null: factors are float32
    int64_t column_bytes_max = kColumnBytesMax;
  };

  explicit Convolution(const Options& options) : options_(options) {}

  absl::Status Run(cudaStream_t stream, const op::Conv2dForward& o) override;
  absl::Status Run(cudaStream_t stream,
                   const op::Conv2dBackwardData& o) override;
  absl::Status Run(cudaStream_t stream,
                   const op::Conv2dBackwardKernel& o) override;
  int64_t scratch_bytes() const override {
    return columns_.bytes() + kernel_.bytes();
  }

 private:
  // Returns how many images of the batch a part has.
  int64_t PartImages(const Conv2dShape& shape) const;
  bool bf16() const { return options_.copies != nullptr; }
  // Makes [filters, kernel * kernel * channels] from [filters, channels,
  // kernel, kernel], in the type that is multiplied.
  absl::StatusOr<const void*> ChannelsLastKernel(cudaStream_t stream,
                                                 const Conv2dShape& shape,
                                                 const float* kernel);
  // Returns the unfolded images of `part`, or the images themselves where these
  // are the same.
  absl::StatusOr<const void*> Unfold(cudaStream_t stream,
                                     const Conv2dShape& part, const float* x);
  // Returns x in the type that is multiplied.
  absl::StatusOr<const void*> Multiplied(cudaStream_t stream, const float* x,
                                         int64_t count);

  const Options options_;
  DeviceScratch columns_;
  DeviceScratch kernel_;
};

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_CONVOLUTION_H_
