// The operations of CudaBackend; its memory and queue are in cuda_backend.cc.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "worker/compute/cuda/cuda_backend.h"
#include "worker/compute/cuda/kernels.h"

namespace weir::cuda {
namespace {

size_t Bytes(int64_t elements) {
  return static_cast<size_t>(elements) * sizeof(float);
}

}  // namespace

void CudaBackend::Wrote(const float* x, int64_t count) {
  // Only bf16 has copies. Some outputs may be null: nothing was written then.
  if (options_.precision == Precision::kBf16 && x != nullptr) {
    copies_.OnWrite(x, count);
  }
}

// Returns null, and keeps the failure, where there is no memory. One scratch
// serves all sums: they follow each other on compute.
float* CudaBackend::Partials(int64_t rows, int64_t width) {
  const absl::StatusOr<void*> memory = partials_.Reserve(
      PartialElements(rows, width) * static_cast<int64_t>(sizeof(float)));
  Keep(memory.status());
  return memory.ok() ? static_cast<float*>(*memory) : nullptr;
}

void CudaBackend::MatMul(const MatMulShape& s, const float* a, const float* b,
                         const float* bias, float* c) {
  Run("matmul", [&] { Product(s, a, b, bias, c); });
  // Here as in all operations: the copies of an output are stale from its write
  // on, so what multiplies it next rounds it again (I1 of bf16_copies.h).
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
      Keep(short_a.status());  // where this one is OK, the other is not
      return Keep(short_b.status());
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
  Run("convolution",
      [&] { Keep(Convolver()->Forward(compute_, shape, x, kernel, bias, y)); });
  Wrote(y,
        shape.batch * shape.out_height() * shape.out_width() * shape.filters);
}

void CudaBackend::Conv2dBackwardData(const Conv2dShape& shape, const float* dy,
                                     const float* kernel, float* dx) {
  Run("convolution backward data", [&] {
    Keep(Convolver()->BackwardData(compute_, shape, dy, kernel, dx));
  });
  Wrote(dx, shape.batch * shape.height * shape.width * shape.channels);
}

void CudaBackend::Conv2dBackwardKernel(const Conv2dShape& shape, const float* x,
                                       const float* dy, float* dkernel,
                                       float* dbias) {
  Run("convolution backward kernel", [&] {
    Keep(Convolver()->BackwardKernel(compute_, shape, x, dy, dkernel));
  });
  Wrote(dkernel, shape.filters * shape.channels * shape.kernel * shape.kernel);
  // The bias is added to every pixel, so its gradient is the sum over them.
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
  // Reserve may allocate, which I2 forbids in a capture. A captured Dropout
  // reads the keys from the device, so a replay has those of its step.
  WEIR_CHECK(!capturing_);
  if (keys.empty()) {
    return;
  }
  const absl::Status grown = keys_.Reserve(keys.size());
  if (!grown.ok()) {
    return Keep(grown);
  }
  std::copy(keys.begin(), keys.end(), keys_.host());
  Keep(cudaMemcpyAsync(keys_.device(), keys_.host(), keys.size_bytes(),
                       cudaMemcpyHostToDevice, upload_),
       "keys of dropout");
  uploads_pending_ = true;
}

void CudaBackend::Dropout(int key_index, float rate, int64_t count,
                          const float* x, float* y) {
  WEIR_CHECK(static_cast<size_t>(key_index) < keys_.capacity());
  Run("dropout", [&] {
    cuda::Dropout(compute_, keys_.device(), key_index, rate, count, x, y);
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
  // Asks CUDA once for each peer.
  if (device == options_.device || !peers_.insert(device).second) {
    return;
  }
  int can = 0;
  Keep(cudaDeviceCanAccessPeer(&can, options_.device, device),
       "cudaDeviceCanAccessPeer");
  // cudaMemcpyPeerAsync works in any case; without access it goes through the
  // host, which is slower and worth a line in the log.
  if (can == 0) {
    LOG_INFO("{}: gradients of cuda:{} come through the host", name_, device);
    return;
  }
  const cudaError_t error = cudaDeviceEnablePeerAccess(device, 0);
  if (error == cudaSuccess) {
    return;
  }
  cudaGetLastError();  // must not be taken for the next kernel's
  // Another backend of this device may have enabled the access.
  if (error != cudaErrorPeerAccessAlreadyEnabled) {
    LOG_INFO("{}: gradients of cuda:{} come through the host: {}", name_,
             device, cudaGetErrorString(error));
  }
}

absl::StatusOr<std::unique_ptr<NcclGroup>> CudaBackend::OpenNccl(
    const std::vector<int>& devices) {
  // NCCL refuses to have two ranks on one device.
  if (std::set<int>(devices.begin(), devices.end()).size() < devices.size()) {
    return absl::InvalidArgumentError("a device occurs twice");
  }
  // I1 of nccl_group.h: its sums have no order.
  if (options_.deterministic) {
    return absl::FailedPreconditionError(
        "it promises no order of additions, and this job wants the same bits "
        "always");
  }
  if (options_.nccl_library == kNoNccl) {
    return absl::FailedPreconditionError("it is switched off");
  }
  NcclApi api;
  if (options_.nccl != nullptr) {
    api = *options_.nccl;
  } else {
    const std::string& library = options_.nccl_library;
    WEIR_ASSIGN_OR_RETURN(api,
                          LoadNccl(library.empty() ? kNcclLibrary : library));
  }
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<NcclGroup> group,
                        NcclGroup::Create(api, devices));
  int version = 0;
  api.get_version(&version);
  LOG_INFO("{}: gradients of cuda:{} are summed by NCCL {}", name_,
           absl::StrJoin(devices, ","), NcclVersionText(version));
  return group;
}

NcclGroup* CudaBackend::FindGroup(const std::vector<int>& devices) {
  const auto it = groups_.find(devices);
  if (it != groups_.end()) {
    return it->second.get();
  }
  absl::StatusOr<std::unique_ptr<NcclGroup>> group = OpenNccl(devices);
  UseDevice();  // NCCL may have selected another one
  if (!group.ok()) {
    // Drops an error that NCCL left, if any; a broken device gives its own
    // again. The null that is kept says not to try again for these devices.
    cudaGetLastError();
    LOG_INFO("{}: gradients of cuda:{} are summed by copies, without NCCL: {}",
             name_, absl::StrJoin(devices, ","),
             std::string(group.status().message()));
    return groups_.emplace(devices, nullptr).first->second.get();
  }
  return groups_.emplace(devices, *std::move(group)).first->second.get();
}

// Sums run on download, so that the backward pass goes on beside them. A sum
// waits for the operations of all devices, and the download of y for the sum.
void CudaBackend::ReduceFromPeers(int64_t count, float own_weight, float* y,
                                  std::span<const PeerTerm> terms) {
  WEIR_CHECK(!capturing_ && !terms.empty());
  std::vector<int> devices = {options_.device};
  for (const PeerTerm& term : terms) {
    auto* const peer = static_cast<CudaBackend*>(term.peer);
    // The contract says that a peer is of the same kind, so the cast above
    // holds.
    WEIR_CHECK(!peer->capturing_);
    devices.push_back(peer->options_.device);
  }
  if (NcclGroup* const group = FindGroup(devices)) {
    Keep(ReduceByNccl(count, own_weight, y, terms, group));
  } else {
    for (const PeerTerm& term : terms) {
      AddFromPeer(count, own_weight, y, static_cast<CudaBackend*>(term.peer),
                  term.x, term.weight);
      own_weight = 1.0f;  // y has been weighed with the first term
    }
  }
  Wrote(y, count);
}

// Each device weighs its own part where it lies, since NCCL adds without
// weights. Then NCCL's kernels, on the download streams, wait for each other.
absl::Status CudaBackend::ReduceByNccl(int64_t count, float own_weight,
                                       float* y,
                                       std::span<const PeerTerm> terms,
                                       NcclGroup* group) {
  std::vector<NcclGroup::Part> parts;
  const auto weigh = [&](CudaBackend* backend, float weight, float* x) {
    backend->UseDevice();
    backend->JoinCompute();
    Scale(backend->download_, count, weight, x);
    parts.push_back({.x = x, .stream = backend->download_});
    return ToStatus(cudaGetLastError(), "weight of a gradient");
  };
  WEIR_RETURN_IF_ERROR(weigh(this, own_weight, y));
  for (const PeerTerm& term : terms) {
    auto* const peer = static_cast<CudaBackend*>(term.peer);
    WEIR_RETURN_IF_ERROR(weigh(peer, term.weight, term.x));
    peer->Wrote(term.x, count);  // it was weighed in place
  }
  UseDevice();
  return group->Reduce(count, parts);
}

void CudaBackend::AddFromPeer(int64_t count, float own_weight, float* y,
                              CudaBackend* peer, const float* x, float weight) {
  // The peer records `computed_` behind its gradient; our download waits for
  // that event before it copies. A selected device is needed for each.
  peer->UseDevice();
  peer->JoinCompute();
  UseDevice();
  OpenPeer(peer->options_.device);
  JoinCompute();
  Keep(cudaStreamWaitEvent(download_, peer->computed_, 0),
       "cudaStreamWaitEvent");
  // One scratch for all terms: copy and sum of a term follow each other on
  // download, and the next term comes behind.
  const absl::StatusOr<void*> copy =
      peer_copy_.Reserve(count * static_cast<int64_t>(sizeof(float)));
  if (!copy.ok()) {
    return Keep(copy.status());
  }
  Keep(cudaMemcpyPeerAsync(*copy, options_.device, x, peer->options_.device,
                           Bytes(count), download_),
       "copy from a peer");
  ScaleAdd(download_, count, weight, static_cast<const float*>(*copy),
           own_weight, y);
  Keep(cudaGetLastError(), "add from a peer");
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

void CudaBackend::MultiplyAdd(int64_t count, const float* a, const float* b,
                              const float* c, float* y) {
  Run("multiply and add",
      [&] { cuda::MultiplyAdd(compute_, count, a, b, c, y); });
  Wrote(y, count);
}

void CudaBackend::GatherSum(const RowLists& lists, int64_t width,
                            const float* x, bool add, float* y) {
  Run("gather sum",
      [&] { cuda::GatherSum(compute_, lists, width, x, add, y); });
  Wrote(y, lists.count * width);
}

void CudaBackend::GatherMax(const RowLists& lists, int64_t width,
                            const float* x, float* y, int32_t* chosen) {
  Run("gather max",
      [&] { cuda::GatherMax(compute_, lists, width, x, y, chosen); });
  Wrote(y, lists.count * width);
}

void CudaBackend::GatherChosen(const RowLists& lists, int64_t width,
                               const float* x, const int32_t* chosen, bool add,
                               float* y) {
  Run("gather chosen",
      [&] { cuda::GatherChosen(compute_, lists, width, x, chosen, add, y); });
  Wrote(y, lists.count * width);
}

void CudaBackend::PairSumForward(const VectorsShape& shape, const float* x,
                                 float* y) {
  Run("pair sum", [&] { cuda::PairSumForward(compute_, shape, x, y); });
  Wrote(y, shape.batch);
}

void CudaBackend::PairSumBackward(const VectorsShape& shape, const float* x,
                                  const float* dy, float* dx) {
  Run("pair sum backward",
      [&] { cuda::PairSumBackward(compute_, shape, x, dy, dx); });
  Wrote(dx, shape.batch * shape.vectors * shape.dim);
}

void CudaBackend::PairDotsForward(const VectorsShape& shape, const float* x,
                                  float* y) {
  Run("pair dots", [&] { cuda::PairDotsForward(compute_, shape, x, y); });
  Wrote(y, shape.batch * shape.pairs());
}

void CudaBackend::PairDotsBackward(const VectorsShape& shape, const float* x,
                                   const float* dy, float* dx) {
  Run("pair dots backward",
      [&] { cuda::PairDotsBackward(compute_, shape, x, dy, dx); });
  Wrote(dx, shape.batch * shape.vectors * shape.dim);
}

}  // namespace weir::cuda
