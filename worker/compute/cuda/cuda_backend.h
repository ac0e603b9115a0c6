// The compute backend of NVIDIA GPUs: cuBLASLt, cuDNN and NCCL where there are
// such, and own kernels.
//
// Place: in the plug-in libweir_cuda.so, which worker/compute/factory opens.
//
// Terms
//   compute, upload, download  the three streams: operations, copies to the
//     device, copies back. Uploads overtake operations that were called before
//     them; what is called after waits for them. Downloads wait for what was
//     called before them and hold nothing up; sums with peers run there, too.
//   span  a time in which operations followed each other without a wait for a
//     copy; busy time is the sum of spans, by CUDA events.
//
// Invariants
//   I1. No memory is allocated once every shape was seen.
//   I2. In a capture no call waits, allocates or asks for an event.
// Threads: compatible; any thread, one at a time.
// Errors: INTERNAL            CUDA or cuBLASLt refused; names the call.
//         those of AllocateDevice.
//         NOT_FOUND           no such device, or one that is too old.
#ifndef WORKER_COMPUTE_CUDA_CUDA_BACKEND_H_
#define WORKER_COMPUTE_CUDA_CUDA_BACKEND_H_

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "worker/compute/backend.h"
#include "worker/compute/cuda/bf16_copies.h"
#include "worker/compute/cuda/convolution.h"
#include "worker/compute/cuda/cudnn_api.h"
#include "worker/compute/cuda/cudnn_convolution.h"
#include "worker/compute/cuda/device_memory.h"
#include "worker/compute/cuda/lt_matmul.h"
#include "worker/compute/cuda/nccl_api.h"
#include "worker/compute/cuda/nccl_group.h"

namespace weir::cuda {

class CudaBackend : public Backend {
 public:
  struct Options {
    int device = 0;
    Precision precision = Precision::kFp32;
    // See Convolution.
    int64_t column_bytes_max = Convolution::kColumnBytesMax;
    // Where cuDNN has faster algorithms that add in any order, they are left
    // out, and so is NCCL, which promises no order. All else here gives the
    // same bits whatever this says.
    bool deterministic = false;
    // Empty: kCudnnLibrary where there is one. "none": not even then.
    std::string cudnn_library = {};
    const CudnnApi* cudnn = nullptr;  // instead of a library, for tests
    // Likewise: kNcclLibrary.
    std::string nccl_library = {};
    const NcclApi* nccl = nullptr;
  };

  static absl::StatusOr<std::unique_ptr<CudaBackend>> Create(
      const Options& options);
  ~CudaBackend() override;

  std::string name() const override { return name_; }
  bool shares_host_memory() const override { return false; }
  std::string pci_bus_id() const override { return pci_bus_id_; }
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
  uint64_t Mark() override;
  bool Reached(uint64_t mark) override;
  void Wait(uint64_t mark) override;
  absl::Status TakeStatus() override;
  DeviceUsage Usage() override;
  bool BeginCapture() override;
  absl::Status EndCapture() override;
  uint64_t Replay() override;

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
  void SetKeys(std::span<const uint64_t> keys) override;
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

 private:
  // Marks of one capture: more variables than any model has.
  static constexpr int kCaptureMarksMax = 16384;

  // What a range of host memory is to this backend.
  struct Allocation {
    int64_t elements = 0;
    float* registered_host = nullptr;  // pinned by us, or null
  };
  // Passed when its event is, or when its flag holds `value`.
  struct PendingMark {
    uint64_t mark = 0;
    cudaEvent_t event = nullptr;
    int flag = -1;
    uint64_t value = 0;
  };
  struct Span {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
  };
  struct EventPool {
    unsigned flags;
    std::vector<cudaEvent_t> free = {};
  };
  // Pinned host memory and the device's copy of it, of 64-bit words.
  struct PinnedWords {
    uint64_t* host = nullptr;
    uint64_t* device = nullptr;
    size_t capacity = 0;
  };

  explicit CudaBackend(const Options& options);
  absl::Status Init();
  // What convolves; looks for cuDNN when first called.
  Convolutions* Convolver();
  absl::StatusOr<std::unique_ptr<CudnnConvolution>> OpenCudnn();

  void Keep(const absl::Status& status) { status_.Update(status); }
  void Keep(cudaError_t error, const char* what);
  void UseDevice();
  cudaEvent_t TakeEvent(EventPool* pool);
  absl::Status GrowWords(size_t count, PinnedWords* words);

  // Makes compute wait for uploads so far, download for both so far.
  void JoinUploads();
  void JoinCompute();
  void OpenSpan();
  void CloseSpan();
  // Keeps any error but cudaErrorNotReady, which is none.
  bool NotReady(cudaError_t error, const char* what);
  bool Passed(const PendingMark& pending);
  void WaitForFlag(const PendingMark& pending);
  void PopMark();
  void CollectSpans();

  // Runs f, which enqueues on compute, and keeps what failed.
  template <class F>
  void Run(const char* what, F f);
  // Lets copies from the device go without the host, where it can.
  void OpenPeer(int device);
  // y = own_weight * y + weight * x, by a copy of x.
  void AddFromPeer(int64_t count, float own_weight, float* y, CudaBackend* peer,
                   const float* x, float weight);
  // The NCCL of a list of devices, this one first; null where copies are the
  // way. Decides when it sees a list for the first time, and logs it.
  NcclGroup* FindGroup(const std::vector<int>& devices);
  absl::StatusOr<std::unique_ptr<NcclGroup>> OpenNccl(
      const std::vector<int>& devices);
  absl::Status ReduceByNccl(int64_t count, float own_weight, float* y,
                            std::span<const PeerTerm> terms, NcclGroup* group);
  // The output of an operation.
  void Wrote(const float* x, int64_t count);
  float* Partials(int64_t rows, int64_t width);
  void Product(const MatMulShape& shape, const float* a, const float* b,
               const float* bias, float* c);

  const Options options_;
  std::string name_;
  std::string pci_bus_id_;
  cudaStream_t compute_ = nullptr;
  cudaStream_t upload_ = nullptr;
  cudaStream_t download_ = nullptr;
  std::unique_ptr<LtMatMul> matmul_;
  Bf16Copies copies_;
  std::unique_ptr<Convolution> own_convolution_;
  std::unique_ptr<CudnnConvolution> cudnn_;  // null: there is none
  Convolutions* convolution_ = nullptr;      // one of them; null: not sought
  DeviceScratch partials_;
  DeviceScratch peer_copy_;  // of AddFromPeer, on download
  std::set<int> peers_;      // devices that OpenPeer has seen
  std::map<std::vector<int>, std::unique_ptr<NcclGroup>>
      groups_;  // FindGroup's

  std::map<float*, Allocation> allocations_;
  int64_t bytes_used_ = 0;
  PinnedWords keys_;

  bool uploads_pending_ = false;  // compute has not joined them
  bool compute_pending_ = false;  // download has not joined it
  cudaEvent_t uploaded_ = nullptr;
  cudaEvent_t computed_ = nullptr;
  uint64_t mark_ = 0;
  std::deque<PendingMark> pending_;
  EventPool mark_events_{cudaEventDisableTiming};
  EventPool span_events_{cudaEventDefault};
  Span open_span_;
  std::deque<Span> spans_;
  int64_t busy_ns_ = 0;
  DeviceUsage usage_;  // of the last look
  std::chrono::steady_clock::time_point usage_time_;

  bool capturing_ = false;
  int captured_marks_ = 0;
  cudaGraphExec_t captured_ = nullptr;
  PinnedWords step_;   // one word: the number of the replay
  PinnedWords flags_;  // host side: by mark, the last replay that passed it
  uint64_t replays_ = 0;

  absl::Status status_;
};

template <class F>
void CudaBackend::Run(const char* what, F f) {
  UseDevice();
  JoinUploads();
  OpenSpan();
  f();
  compute_pending_ = true;
  Keep(cudaGetLastError(), what);
}

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_CUDA_BACKEND_H_
