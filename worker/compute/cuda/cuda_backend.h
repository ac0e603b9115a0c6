// The compute backend of NVIDIA GPUs: cuBLASLt, cuDNN and NCCL where they are
// installed, and Weir's own kernels.
//
// Place: in the plug-in libweir_cuda.so, which worker/compute/factory opens.
//
// Terms
//   compute, upload, download, aside  the streams: operations, copies to the
//     device, copies back. Uploads overtake operations that were called before
//     them; what is called after waits for them, or for those aside only once
//     they are joined. Downloads wait for what was called before them and hold
//     nothing up; sums with peers run there, too. UploadNow has streams of its
//     own (UploadLanes).
//   busy time  the sum of the spans (events.h) of the compute stream.
//
// Invariants
//   I1. Once every shape was seen, no operation allocates memory.
//   I2. In a capture no call waits, allocates or asks whether an event passed.
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

#include "common/base/mutex.h"
#include "worker/compute/backend.h"
#include "worker/compute/cuda/device_memory.h"
#include "worker/compute/cuda/events.h"
#include "worker/compute/cuda/nccl_api.h"
#include "worker/compute/cuda/nccl_group.h"
#include "worker/compute/cuda/operations.h"

namespace weir::cuda {

class CudaBackend : public Backend {
 public:
  using Options = CudaOptions;

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
  void UploadAside(float* device, const float* host, int64_t elements) override;
  void JoinUploadsAside() override;
  absl::Status UploadNow(float* device, HostPieces values) override {
    return upload_lanes_.Upload(device, values);
  }
  void NoteUploaded(float* device, int64_t elements) override {
    operations_->OnWrite(device, elements);
  }
  void Download(float* host, const float* device, int64_t elements) override;
  PageObserver* host_pages() override { return &host_pages_; }
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

  void Run(const Operation& operation) override;
  void SetKeys(std::span<const uint64_t> keys) override;

 private:
  // Marks of one capture. No model has as many variables.
  static constexpr int kCaptureMarksMax = 16384;

  // A range of device memory that Allocate or MirrorHost made.
  struct Allocation {
    int64_t elements = 0;
    float* registered_host = nullptr;  // pinned by us, or null
  };
  // A mark that was not seen to be reached. It is reached when its event has
  // passed, or when its flag holds `value` or more: a later replay's.
  struct PendingMark {
    uint64_t mark = 0;
    cudaEvent_t event = nullptr;
    int flag = -1;
    uint64_t value = 0;
  };

  // Locks memory of the host for its copies.
  class HostPages : public PageObserver {
   public:
    explicit HostPages(CudaBackend* backend) : backend_(backend) {}
    void OnAllocate(void* pages, size_t bytes) override;
    // Waits for the uploads so far: a step that ended early may have left some.
    void OnFree(void* pages) override;

   private:
    CudaBackend* const backend_;
    Mutex mutex_;
    std::set<void*> locked_ ABSL_GUARDED_BY(mutex_);
  };

  explicit CudaBackend(const Options& options);
  absl::Status Init();
  void Keep(const absl::Status& status) { status_.Update(status); }
  void Keep(cudaError_t error, const char* what);
  void UseDevice();

  // Makes compute wait for the uploads so far.
  void JoinUploads();
  // Makes download wait for the uploads and for compute so far.
  void JoinCompute();
  // Keeps any error but cudaErrorNotReady, for which it returns true.
  bool NotReady(cudaError_t error, const char* what);
  bool Passed(const PendingMark& pending);
  void WaitForFlag(const PendingMark& pending);
  void PopMark();

  // Lets copies from `device` bypass the host, where the hardware can do it.
  void OpenPeer(int device);
  // y = own_weight * y + weight * x, by a copy of x.
  void AddFromPeer(int64_t count, float own_weight, float* y, CudaBackend* peer,
                   const float* x, float weight);
  // Returns the NCCL group of a list of devices, this one first, or null where
  // sums go by copies. It decides when it sees a list for the first time, and
  // logs what it decided.
  NcclGroup* FindGroup(const std::vector<int>& devices);
  absl::StatusOr<std::unique_ptr<NcclGroup>> OpenNccl(
      const std::vector<int>& devices);
  absl::Status ReduceByNccl(int64_t count, float own_weight, float* y,
                            std::span<const PeerTerm> terms, NcclGroup* group);

  const Options options_;
  std::string name_;
  std::string pci_bus_id_;
  cudaStream_t compute_ = nullptr;
  cudaStream_t upload_ = nullptr;
  cudaStream_t download_ = nullptr;
  cudaStream_t aside_ = nullptr;
  HostPages host_pages_;
  UploadLanes upload_lanes_;
  std::unique_ptr<Operations> operations_;  // null where Init() failed
  DeviceScratch peer_copy_;                 // for AddFromPeer, on download
  std::set<int> peers_;                     // devices that OpenPeer has seen
  // The decisions of FindGroup, by list of devices.
  std::map<std::vector<int>, std::unique_ptr<NcclGroup>> groups_;

  std::map<float*, Allocation> allocations_;
  int64_t bytes_used_ = 0;

  bool uploads_pending_ = false;  // compute has not joined them
  bool aside_pending_ = false;    // compute has not joined those aside
  bool compute_pending_ = false;  // download has not joined it
  cudaEvent_t uploaded_ = nullptr;
  cudaEvent_t computed_ = nullptr;
  uint64_t mark_ = 0;
  std::deque<PendingMark> pending_;
  EventPool mark_events_{cudaEventDisableTiming};
  BusySpans busy_;     // of compute
  DeviceUsage usage_;  // what the last call of Usage gave
  std::chrono::steady_clock::time_point usage_time_;

  bool capturing_ = false;
  int captured_marks_ = 0;
  cudaGraphExec_t captured_ = nullptr;
  PinnedWords step_;   // one word: the number of the replay
  PinnedWords flags_;  // host side: by mark, the last replay that passed it
  uint64_t replays_ = 0;

  absl::Status status_;
};

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_CUDA_BACKEND_H_
