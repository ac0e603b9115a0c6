// The backend that every machine has: oneDNN for products and convolutions,
// plain loops for the rest.
//
// Place: worker/compute/factory makes it where a job asks for "cpu". Its memory
// is the host's, so mirrors and copies cost nothing. Every operation has run
// when its call returns. Only oneDNN uses `threads`; the loops run on the
// caller's thread.
//
// Threads: compatible.
#ifndef WORKER_COMPUTE_CPU_CPU_BACKEND_H_
#define WORKER_COMPUTE_CPU_CPU_BACKEND_H_

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/compute/backend.h"
#include "worker/compute/cpu/dnnl_ops.h"

namespace weir {

class CpuBackend : public Backend {
 public:
  // REQUIRES: threads >= 1.
  static absl::StatusOr<std::unique_ptr<CpuBackend>> Create(int threads);
  ~CpuBackend() override;

  std::string name() const override { return "cpu"; }
  bool shares_host_memory() const override { return true; }
  absl::StatusOr<float*> Allocate(int64_t elements) override;
  void Release(float* device) override;
  absl::StatusOr<float*> MirrorHost(float* host, int64_t elements) override;
  void Upload(float* device, const float* host, int64_t elements) override;
  void Download(float* host, const float* device, int64_t elements) override;
  const float* Stage(float* device, const float* host,
                     int64_t elements) override;
  const float* Fetch(float* host, const float* device,
                     int64_t elements) override;
  void ReduceFromPeers(int64_t count, float own_weight, float* y,
                       std::span<const PeerTerm> terms) override;
  uint64_t Mark() override { return 0; }
  bool Reached(uint64_t) override { return true; }
  void Wait(uint64_t) override {}
  absl::Status TakeStatus() override {
    return std::exchange(status_, absl::OkStatus());
  }

  void MatMul(const MatMulShape& shape, const float* a, const float* b,
              const float* bias, float* c) override;
  void SumRows(int64_t rows, int64_t width, const float* x,
               float* sums) override;
  void Conv2dForward(const Conv2dShape& shape, const float* x,
                     const float* kernel, const float* bias, float* y) override;
  void Conv2dBackwardData(const Conv2dShape& shape, const float* dy,
                          const float* kernel, float* dx) override;
  void Conv2dBackwardKernel(const Conv2dShape& shape, const float* x,
                            const float* dy, float* dkernel,
                            float* dbias) override;
  void PoolForward(PoolKind kind, const PoolShape& shape, const float* x,
                   float* y) override;
  void PoolBackward(PoolKind kind, const PoolShape& shape, const float* x,
                    const float* dy, float* dx) override;
  void ActivationForward(ActivationKind kind, int64_t count, const float* x,
                         float* y) override;
  void ActivationBackward(ActivationKind kind, int64_t count, const float* y,
                          const float* dy, float* dx) override;
  void SetKeys(std::span<const uint64_t> keys) override {
    keys_.assign(keys.begin(), keys.end());
  }
  void Dropout(int key_index, float rate, int64_t count, const float* x,
               float* y) override;
  void LayerNormForward(int64_t rows, int64_t width, float epsilon,
                        const float* x, const float* scale, const float* offset,
                        float* y, float* mean, float* rstd) override;
  void LayerNormBackward(int64_t rows, int64_t width, const float* x,
                         const float* scale, const float* mean,
                         const float* rstd, const float* dy, float* dx,
                         float* dscale, float* doffset) override;
  void BatchNormForward(int64_t rows, int64_t channels, float epsilon,
                        const float* x, const float* scale, const float* offset,
                        float* y, float* mean, float* rstd,
                        float* variance) override;
  void BatchNormBackward(int64_t rows, int64_t channels, const float* x,
                         const float* scale, const float* mean,
                         const float* rstd, const float* dy, float* dx,
                         float* dscale, float* doffset) override;
  void BatchNormInference(int64_t rows, int64_t channels, float epsilon,
                          const float* x, const float* scale,
                          const float* offset, const float* mean,
                          const float* variance, float* y) override;
  void Add(int64_t count, const float* a, const float* b, float* y) override;
  void MultiplyAdd(int64_t count, const float* a, const float* b,
                   const float* c, float* y) override;
  void CopyColumns(int64_t rows, int64_t width, const float* x,
                   int64_t x_stride, float* y, int64_t y_stride) override;
  void Transpose(int64_t batch, int64_t rows, int64_t columns, const float* x,
                 float* y) override;
  void GatherSum(const RowLists& lists, int64_t width, const float* x, bool add,
                 float* y) override;
  void GatherMax(const RowLists& lists, int64_t width, const float* x, float* y,
                 int32_t* chosen) override;
  void GatherChosen(const RowLists& lists, int64_t width, const float* x,
                    const int32_t* chosen, bool add, float* y) override;
  void PairSumForward(const VectorsShape& shape, const float* x,
                      float* y) override;
  void PairSumBackward(const VectorsShape& shape, const float* x,
                       const float* dy, float* dx) override;
  void PairDotsForward(const VectorsShape& shape, const float* x,
                       float* y) override;
  void PairDotsBackward(const VectorsShape& shape, const float* x,
                        const float* dy, float* dx) override;
  void Loss(LossKind kind, int64_t rows, int64_t width, const float* x,
            const float* labels, float* row_loss, float* row_correct,
            float* dx) override;

 protected:
  // Protected for tests, which derive a backend with a broken operation.
  explicit CpuBackend(std::unique_ptr<DnnlOps> dnnl);

 private:
  void Keep(const absl::Status& status);

  const std::unique_ptr<DnnlOps> dnnl_;
  std::set<float*> allocated_;
  absl::Status status_;
  std::vector<uint64_t> keys_;
};

}  // namespace weir

#endif  // WORKER_COMPUTE_CPU_CPU_BACKEND_H_
