// The operations of CudaBackend; its memory and queue are in cuda_backend.cc.
#include <algorithm>

#include "common/check.h"
#include "common/logging.h"
#include "worker/compute/cuda/cuda_backend.h"
#include "worker/compute/cuda/kernels.h"

namespace weir::cuda {
namespace {

size_t Bytes(int64_t elements) {
  return static_cast<size_t>(elements) * sizeof(float);
}

}  // namespace

void CudaBackend::Wrote(const float* x, int64_t count) {
  if (options_.precision == Precision::kBf16 && x != nullptr) {
    copies_.OnWrite(x, count);
  }
}

// Null, and the failure kept, where there is no memory for it.
float* CudaBackend::Partials(int64_t rows, int64_t width) {
  const absl::StatusOr<void*> memory = partials_.Reserve(
      PartialElements(rows, width) * static_cast<int64_t>(sizeof(float)));
  Keep(memory.status());
  return memory.ok() ? static_cast<float*>(*memory) : nullptr;
}

void CudaBackend::MatMul(const MatMulShape& s, const float* a, const float* b,
                         const float* bias, float* c) {
  Run("matmul", [&] { Product(s, a, b, bias, c); });
  Wrote(c, s.m * s.n);
}

void CudaBackend::Product(const MatMulShape& s, const float* a, const float* b,
                          const float* bias, float* c) {
  LtMatMul::Inputs inputs = {a, b, false};
  if (options_.precision == Precision::kBf16) {
    const absl::StatusOr<const Bf16*> short_a =
        copies_.Of(compute_, a, s.m * s.k);
    const absl::StatusOr<const Bf16*> short_b =
        copies_.Of(compute_, b, s.k * s.n);
    if (!short_a.ok() || !short_b.ok()) {
      return Keep(short_a.ok() ? short_b.status() : short_a.status());
    }
    inputs = {*short_a, *short_b, true};
  }
  Keep(matmul_->Run(compute_, s, inputs, bias, c, /*accumulate=*/false));
}

void CudaBackend::SumRows(int64_t rows, int64_t width, const float* x,
                          float* sums) {
  Run("sum of rows", [&] {
    if (float* const partials = Partials(rows, width)) {
      cuda::SumRows(compute_, rows, width, x, sums, partials);
    }
  });
  Wrote(sums, width);
}

void CudaBackend::Conv2dForward(const Conv2dShape& shape, const float* x,
                                const float* kernel, const float* bias,
                                float* y) {
  Run("convolution", [&] {
    Keep(convolution_->Forward(compute_, shape, x, kernel, bias, y));
  });
  Wrote(y,
        shape.batch * shape.out_height() * shape.out_width() * shape.filters);
}

void CudaBackend::Conv2dBackwardData(const Conv2dShape& shape, const float* dy,
                                     const float* kernel, float* dx) {
  Run("convolution backward data", [&] {
    Keep(convolution_->BackwardData(compute_, shape, dy, kernel, dx));
  });
  Wrote(dx, shape.batch * shape.height * shape.width * shape.channels);
}

void CudaBackend::Conv2dBackwardKernel(const Conv2dShape& shape, const float* x,
                                       const float* dy, float* dkernel,
                                       float* dbias) {
  Run("convolution backward kernel", [&] {
    Keep(convolution_->BackwardKernel(compute_, shape, x, dy, dkernel));
  });
  Wrote(dkernel, shape.filters * shape.channels * shape.kernel * shape.kernel);
  if (dbias != nullptr) {
    SumRows(shape.batch * shape.out_height() * shape.out_width(), shape.filters,
            dy, dbias);
  }
}

void CudaBackend::PoolForward(PoolKind kind, const PoolShape& shape,
                              const float* x, float* y) {
  Run("pooling", [&] { cuda::PoolForward(compute_, kind, shape, x, y); });
  Wrote(y,
        shape.batch * shape.out_height() * shape.out_width() * shape.channels);
}

void CudaBackend::PoolBackward(PoolKind kind, const PoolShape& shape,
                               const float* x, const float* dy, float* dx) {
  Run("pooling backward",
      [&] { cuda::PoolBackward(compute_, kind, shape, x, dy, dx); });
  Wrote(dx, shape.batch * shape.height * shape.width * shape.channels);
}

void CudaBackend::ActivationForward(ActivationKind kind, int64_t count,
                                    const float* x, float* y) {
  Run("activation", [&] { Activate(compute_, kind, count, x, y); });
  Wrote(y, count);
}

void CudaBackend::ActivationBackward(ActivationKind kind, int64_t count,
                                     const float* y, const float* dy,
                                     float* dx) {
  Run("activation backward",
      [&] { ActivateBackward(compute_, kind, count, y, dy, dx); });
  Wrote(dx, count);
}

void CudaBackend::SetKeys(std::span<const uint64_t> keys) {
  UseDevice();
  WEIR_CHECK(!capturing_);
  if (keys.empty()) {
    return;
  }
  const absl::Status grown = GrowWords(keys.size(), &keys_);
  if (!grown.ok()) {
    return Keep(grown);
  }
  std::copy(keys.begin(), keys.end(), keys_.host);
  Keep(cudaMemcpyAsync(keys_.device, keys_.host, keys.size_bytes(),
                       cudaMemcpyHostToDevice, upload_),
       "keys of dropout");
  uploads_pending_ = true;
}

void CudaBackend::Dropout(int key_index, float rate, int64_t count,
                          const float* x, float* y) {
  WEIR_CHECK(static_cast<size_t>(key_index) < keys_.capacity);
  Run("dropout", [&] {
    cuda::Dropout(compute_, keys_.device, key_index, rate, count, x, y);
  });
  Wrote(y, count);
}

void CudaBackend::LayerNormForward(int64_t rows, int64_t width, float epsilon,
                                   const float* x, const float* scale,
                                   const float* offset, float* y, float* mean,
                                   float* rstd) {
  Run("layer norm", [&] {
    cuda::LayerNormForward(compute_, rows, width, epsilon, x, scale, offset, y,
                           mean, rstd);
  });
  Wrote(y, rows * width);
  Wrote(mean, rows);
  Wrote(rstd, rows);
}

void CudaBackend::LayerNormBackward(int64_t rows, int64_t width, const float* x,
                                    const float* scale, const float* mean,
                                    const float* rstd, const float* dy,
                                    float* dx, float* dscale, float* doffset) {
  Run("layer norm backward", [&] {
    if (float* const partials = Partials(rows, width)) {
      cuda::LayerNormBackward(compute_, rows, width, x, scale, mean, rstd, dy,
                              dx, dscale, doffset, partials);
    }
  });
  Wrote(dx, rows * width);
  Wrote(dscale, width);
  Wrote(doffset, width);
}

void CudaBackend::BatchNormForward(int64_t rows, int64_t channels,
                                   float epsilon, const float* x,
                                   const float* scale, const float* offset,
                                   float* y, float* mean, float* rstd,
                                   float* variance) {
  Run("batch norm", [&] {
    if (float* const partials = Partials(rows, channels)) {
      cuda::BatchNormForward(compute_, rows, channels, epsilon, x, scale,
                             offset, y, mean, rstd, variance, partials);
    }
  });
  Wrote(y, rows * channels);
  for (const float* const statistic : {mean, rstd, variance}) {
    Wrote(statistic, channels);
  }
}

void CudaBackend::BatchNormBackward(int64_t rows, int64_t channels,
                                    const float* x, const float* scale,
                                    const float* mean, const float* rstd,
                                    const float* dy, float* dx, float* dscale,
                                    float* doffset) {
  Run("batch norm backward", [&] {
    if (float* const partials = Partials(rows, channels)) {
      cuda::BatchNormBackward(compute_, rows, channels, x, scale, mean, rstd,
                              dy, dx, dscale, doffset, partials);
    }
  });
  Wrote(dx, rows * channels);
  Wrote(dscale, channels);
  Wrote(doffset, channels);
}

void CudaBackend::BatchNormInference(int64_t rows, int64_t channels,
                                     float epsilon, const float* x,
                                     const float* scale, const float* offset,
                                     const float* mean, const float* variance,
                                     float* y) {
  Run("batch norm inference", [&] {
    cuda::BatchNormInference(compute_, rows, channels, epsilon, x, scale,
                             offset, mean, variance, y);
  });
  Wrote(y, rows * channels);
}

void CudaBackend::Add(int64_t count, const float* a, const float* b, float* y) {
  Run("add", [&] { cuda::Add(compute_, count, a, b, y); });
  Wrote(y, count);
}

void CudaBackend::OpenPeer(int device) {
  if (device == options_.device || !peers_.insert(device).second) {
    return;
  }
  int can = 0;
  Keep(cudaDeviceCanAccessPeer(&can, options_.device, device),
       "cudaDeviceCanAccessPeer");
  const cudaError_t error =
      can != 0 ? cudaDeviceEnablePeerAccess(device, 0) : cudaSuccess;
  if (error != cudaSuccess) {
    cudaGetLastError();  // this one does not stay
  }
  if (can == 0 ||
      (error != cudaSuccess && error != cudaErrorPeerAccessAlreadyEnabled)) {
    LOG_INFO("{}: gradients of cuda:{} come through the host{}{}", name_,
             device, can == 0 ? "" : ": ",
             can == 0 ? "" : cudaGetErrorString(error));
  }
}

// On download, so that backward goes on meanwhile: the copy of x has its turn
// behind both devices' operations, and y's download behind the sum.
void CudaBackend::AddFromPeer(int64_t count, float weight, Backend* peer,
                              const float* x, float own_weight, float* y) {
  auto* const other = static_cast<CudaBackend*>(peer);
  WEIR_CHECK(!capturing_ && !other->capturing_);
  other->UseDevice();
  other->JoinCompute();
  UseDevice();
  OpenPeer(other->options_.device);
  JoinCompute();
  Keep(cudaStreamWaitEvent(download_, other->computed_, 0),
       "cudaStreamWaitEvent");
  const absl::StatusOr<void*> copy =
      peer_copy_.Reserve(count * static_cast<int64_t>(sizeof(float)));
  if (!copy.ok()) {
    return Keep(copy.status());
  }
  Keep(cudaMemcpyPeerAsync(*copy, options_.device, x, other->options_.device,
                           Bytes(count), download_),
       "copy from a peer");
  ScaleAdd(download_, count, weight, static_cast<const float*>(*copy),
           own_weight, y);
  Keep(cudaGetLastError(), "add from a peer");
  Wrote(y, count);
}

void CudaBackend::CopyColumns(int64_t rows, int64_t width, const float* x,
                              int64_t x_stride, float* y, int64_t y_stride) {
  Run("copy of columns", [&] {
    Keep(cudaMemcpy2DAsync(y, Bytes(y_stride), x, Bytes(x_stride), Bytes(width),
                           static_cast<size_t>(rows), cudaMemcpyDeviceToDevice,
                           compute_),
         "copy of columns");
  });
  Wrote(y, rows * y_stride);
}

void CudaBackend::Transpose(int64_t batch, int64_t rows, int64_t columns,
                            const float* x, float* y) {
  Run("transpose",
      [&] { cuda::Transpose(compute_, batch, rows, columns, x, y); });
  Wrote(y, batch * rows * columns);
}

void CudaBackend::Loss(LossKind kind, int64_t rows, int64_t width,
                       const float* x, const float* labels, float* row_loss,
                       float* row_correct, float* dx) {
  Run("loss", [&] {
    cuda::Loss(compute_, kind, rows, width, x, labels, row_loss, row_correct,
               dx);
  });
  Wrote(row_loss, rows);
  Wrote(row_correct, rows);
  Wrote(dx, rows * width);
}

}  // namespace weir::cuda
