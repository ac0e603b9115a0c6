#include "worker/compute/cpu/cpu_backend.h"

#include <cstdlib>
#include <cstring>

#include "common/base/check.h"
#include "common/base/status.h"
#include "worker/compute/cpu/loops.h"
#include "worker/compute/cpu/norms.h"
#include "worker/compute/cpu/sparse.h"

namespace weir {
namespace {

// 256 GiB. A larger tensor is a mistake in the job, and allocators differ in
// how they refuse it: some give address space that no memory stands behind.
constexpr int64_t kElementsMax = int64_t{1} << 36;

}  // namespace

CpuBackend::CpuBackend(std::unique_ptr<DnnlOps> dnnl)
    : dnnl_(std::move(dnnl)) {}

CpuBackend::~CpuBackend() {
  for (float* p : allocated_) {
    std::free(p);
  }
}

absl::StatusOr<std::unique_ptr<CpuBackend>> CpuBackend::Create(int threads) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<DnnlOps> dnnl,
                        DnnlOps::Create(threads));
  return std::unique_ptr<CpuBackend>(new CpuBackend(std::move(dnnl)));
}

absl::StatusOr<float*> CpuBackend::Allocate(int64_t elements) {
  WEIR_CHECK(elements >= 0);
  // aligned_alloc wants a multiple of the alignment. The "+ 1" gives a tensor
  // of no elements an address of its own, which Release can find.
  const size_t bytes =
      (static_cast<size_t>(elements) * sizeof(float) / 64 + 1) * 64;
  float* p = nullptr;
  if (elements <= kElementsMax) {
    p = static_cast<float*>(std::aligned_alloc(64, bytes));
  }
  if (p == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", bytes, " bytes of tensors"));
  }
  std::memset(p, 0, bytes);  // take the page faults here, not in a step
  allocated_.insert(p);
  return p;
}

void CpuBackend::Release(float* device) {
  // The mirror of host memory is that memory: it is not ours to free.
  if (allocated_.erase(device) > 0) {
    std::free(device);
  }
}

absl::StatusOr<float*> CpuBackend::MirrorHost(float* host, int64_t) {
  return host;
}

void CpuBackend::Upload(float* device, const float* host, int64_t elements) {
  // A mirror is already there. Where there is nothing to copy, either pointer
  // may be null, which memcpy forbids.
  if (device != host && elements > 0) {
    std::memcpy(device, host, elements * sizeof(float));
  }
}

void CpuBackend::Download(float* host, const float* device, int64_t elements) {
  if (device != host && elements > 0) {
    std::memcpy(host, device, elements * sizeof(float));
  }
}

const float* CpuBackend::Stage(float*, const float* host, int64_t) {
  return host;
}

const float* CpuBackend::Fetch(float*, const float* device, int64_t) {
  return device;
}

void CpuBackend::ReduceFromPeers(int64_t count, float own_weight, float* y,
                                 std::span<const PeerTerm> terms) {
  // Every operation has run when its call returns, so all peers' x are
  // complete.
  for (const PeerTerm& term : terms) {
    loops::ScaleAdd(count, term.weight, term.x, own_weight, y);
    own_weight = 1.0f;  // y has been weighed with the first term
  }
}

// Update() keeps the first failure, which is the one that TakeStatus() owes;
// the later ones mostly follow from it.
void CpuBackend::Keep(const absl::Status& status) { status_.Update(status); }

void CpuBackend::MatMul(const MatMulShape& shape, const float* a,
                        const float* b, const float* bias, float* c) {
  Keep(dnnl_->MatMul(shape, a, b, bias, c));
}

void CpuBackend::SumRows(int64_t rows, int64_t width, const float* x,
                         float* sums) {
  loops::SumRows(rows, width, x, sums);
}

void CpuBackend::Conv2dForward(const Conv2dShape& shape, const float* x,
                               const float* kernel, const float* bias,
                               float* y) {
  Keep(dnnl_->Conv2dForward(shape, x, kernel, bias, y));
}

void CpuBackend::Conv2dBackwardData(const Conv2dShape& shape, const float* dy,
                                    const float* kernel, float* dx) {
  Keep(dnnl_->Conv2dBackwardData(shape, dy, kernel, dx));
}

void CpuBackend::Conv2dBackwardKernel(const Conv2dShape& shape, const float* x,
                                      const float* dy, float* dkernel,
                                      float* dbias) {
  Keep(dnnl_->Conv2dBackwardKernel(shape, x, dy, dkernel, dbias));
}

void CpuBackend::PoolForward(PoolKind kind, const PoolShape& shape,
                             const float* x, float* y) {
  loops::PoolForward(kind, shape, x, y);
}

void CpuBackend::PoolBackward(PoolKind kind, const PoolShape& shape,
                              const float* x, const float* dy, float* dx) {
  loops::PoolBackward(kind, shape, x, dy, dx);
}

void CpuBackend::ActivationForward(ActivationKind kind, int64_t count,
                                   const float* x, float* y) {
  loops::ActivationForward(kind, count, x, y);
}

void CpuBackend::ActivationBackward(ActivationKind kind, int64_t count,
                                    const float* y, const float* dy,
                                    float* dx) {
  loops::ActivationBackward(kind, count, y, dy, dx);
}

void CpuBackend::Dropout(int key_index, float rate, int64_t count,
                         const float* x, float* y) {
  // The layer that draws must have given its key to SetKeys in this step.
  WEIR_CHECK(static_cast<size_t>(key_index) < keys_.size());
  loops::Dropout(keys_[key_index], rate, count, x, y);
}

void CpuBackend::LayerNormForward(int64_t rows, int64_t width, float epsilon,
                                  const float* x, const float* scale,
                                  const float* offset, float* y, float* mean,
                                  float* rstd) {
  loops::LayerNormForward(rows, width, epsilon, x, scale, offset, y, mean,
                          rstd);
}

void CpuBackend::LayerNormBackward(int64_t rows, int64_t width, const float* x,
                                   const float* scale, const float* mean,
                                   const float* rstd, const float* dy,
                                   float* dx, float* dscale, float* doffset) {
  loops::LayerNormBackward(rows, width, x, scale, mean, rstd, dy, dx, dscale,
                           doffset);
}

void CpuBackend::BatchNormForward(int64_t rows, int64_t channels, float epsilon,
                                  const float* x, const float* scale,
                                  const float* offset, float* y, float* mean,
                                  float* rstd, float* variance) {
  loops::BatchNormForward(rows, channels, epsilon, x, scale, offset, y, mean,
                          rstd, variance);
}

void CpuBackend::BatchNormBackward(int64_t rows, int64_t channels,
                                   const float* x, const float* scale,
                                   const float* mean, const float* rstd,
                                   const float* dy, float* dx, float* dscale,
                                   float* doffset) {
  loops::BatchNormBackward(rows, channels, x, scale, mean, rstd, dy, dx, dscale,
                           doffset);
}

void CpuBackend::BatchNormInference(int64_t rows, int64_t channels,
                                    float epsilon, const float* x,
                                    const float* scale, const float* offset,
                                    const float* mean, const float* variance,
                                    float* y) {
  loops::BatchNormInference(rows, channels, epsilon, x, scale, offset, mean,
                            variance, y);
}

void CpuBackend::Add(int64_t count, const float* a, const float* b, float* y) {
  loops::Add(count, a, b, y);
}

void CpuBackend::MultiplyAdd(int64_t count, const float* a, const float* b,
                             const float* c, float* y) {
  loops::MultiplyAdd(count, a, b, c, y);
}

void CpuBackend::CopyColumns(int64_t rows, int64_t width, const float* x,
                             int64_t x_stride, float* y, int64_t y_stride) {
  loops::CopyColumns(rows, width, x, x_stride, y, y_stride);
}

void CpuBackend::Transpose(int64_t batch, int64_t rows, int64_t columns,
                           const float* x, float* y) {
  loops::Transpose(batch, rows, columns, x, y);
}

void CpuBackend::GatherSum(const RowLists& lists, int64_t width, const float* x,
                           bool add, float* y) {
  loops::GatherSum(lists, width, x, add, y);
}

void CpuBackend::GatherMax(const RowLists& lists, int64_t width, const float* x,
                           float* y, int32_t* chosen) {
  loops::GatherMax(lists, width, x, y, chosen);
}

void CpuBackend::GatherChosen(const RowLists& lists, int64_t width,
                              const float* x, const int32_t* chosen, bool add,
                              float* y) {
  loops::GatherChosen(lists, width, x, chosen, add, y);
}

void CpuBackend::PairSumForward(const VectorsShape& shape, const float* x,
                                float* y) {
  loops::PairSumForward(shape, x, y);
}

void CpuBackend::PairSumBackward(const VectorsShape& shape, const float* x,
                                 const float* dy, float* dx) {
  loops::PairSumBackward(shape, x, dy, dx);
}

void CpuBackend::PairDotsForward(const VectorsShape& shape, const float* x,
                                 float* y) {
  loops::PairDotsForward(shape, x, y);
}

void CpuBackend::PairDotsBackward(const VectorsShape& shape, const float* x,
                                  const float* dy, float* dx) {
  loops::PairDotsBackward(shape, x, dy, dx);
}

void CpuBackend::Loss(LossKind kind, int64_t rows, int64_t width,
                      const float* x, const float* labels, float* row_loss,
                      float* row_correct, float* dx) {
  // The width of a sigmoid is 1 by contract, so that loop does not take it.
  switch (kind) {
    case LossKind::kSoftmaxCrossEntropy:
      loops::SoftmaxCrossEntropy(rows, width, x, labels, row_loss, row_correct,
                                 dx);
      break;
    case LossKind::kSigmoidCrossEntropy:
      loops::SigmoidCrossEntropy(rows, x, labels, row_loss, row_correct, dx);
      break;
    case LossKind::kMeanSquaredError:
      loops::MeanSquaredError(rows, width, x, labels, row_loss, row_correct,
                              dx);
      break;
  }
}

}  // namespace weir
