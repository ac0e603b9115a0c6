#include "worker/compute/cuda/cuda_backend.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/logging.h"
#include "common/base/status.h"

namespace weir::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);
// Compute capability 8.0 is the first with bfloat16 products in cuBLASLt.
constexpr int kOldestMajor = 8;
constexpr std::chrono::seconds kMemoryLookEvery{1};

size_t Bytes(int64_t elements) {
  return static_cast<size_t>(elements) * sizeof(float);
}

}  // namespace

// ------------------------------------------------------------------ set-up

CudaBackend::CudaBackend(const Options& options)
    : options_(options), host_pages_(this), upload_lanes_(options.device) {}

absl::StatusOr<std::unique_ptr<CudaBackend>> CudaBackend::Create(
    const Options& options) {
  int count = 0;
  WEIR_RETURN_IF_ERROR(
      ToStatus(cudaGetDeviceCount(&count), "cudaGetDeviceCount"));
  if (options.device < 0 || options.device >= count) {
    return absl::NotFoundError(absl::StrCat(
        "there is no cuda:", options.device, "; this machine has ", count,
        count == 1 ? " device" : " devices", ", counted from cuda:0"));
  }
  std::unique_ptr<CudaBackend> backend(new CudaBackend(options));
  WEIR_RETURN_IF_ERROR(backend->Init());
  return backend;
}

absl::Status CudaBackend::Init() {
  WEIR_RETURN_IF_ERROR(
      ToStatus(cudaSetDevice(options_.device), "cudaSetDevice"));
  cudaDeviceProp properties = {};
  WEIR_RETURN_IF_ERROR(
      ToStatus(cudaGetDeviceProperties(&properties, options_.device),
               "cudaGetDeviceProperties"));
  name_ = absl::StrCat("cuda:", options_.device, " (", properties.name, ")");
  pci_bus_id_ = absl::StrFormat("%08x:%02x:%02x.0", properties.pciDomainID,
                                properties.pciBusID, properties.pciDeviceID);
  if (properties.major < kOldestMajor) {
    return absl::NotFoundError(
        absl::StrCat(name_, " has compute capability ", properties.major, ".",
                     properties.minor, "; Weir needs 8.0 or newer"));
  }
  // Non-blocking: a stream of ours must not wait for the default stream, on
  // which another library in this process may work.
  for (cudaStream_t* stream : {&compute_, &upload_, &download_, &aside_}) {
    WEIR_RETURN_IF_ERROR(
        ToStatus(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking),
                 "cudaStreamCreate"));
  }
  // These two only order streams. Without timing they cost less.
  for (cudaEvent_t* event : {&uploaded_, &computed_}) {
    WEIR_RETURN_IF_ERROR(
        ToStatus(cudaEventCreateWithFlags(event, cudaEventDisableTiming),
                 "cudaEventCreate"));
  }
  // I1, I2: a capture may not allocate, so the flags of its marks are here
  // before. Replays count from 1, so no flag holds the number of one yet.
  WEIR_RETURN_IF_ERROR(step_.Reserve(1));
  WEIR_RETURN_IF_ERROR(flags_.Reserve(kCaptureMarksMax));
  std::fill_n(flags_.host(), kCaptureMarksMax, 0);
  WEIR_ASSIGN_OR_RETURN(operations_, Operations::Create(options_, name_));
  return absl::OkStatus();
}

CudaBackend::~CudaBackend() {
  UseDevice();
  // Nothing below may be freed while an operation still uses it.
  cudaDeviceSynchronize();
  while (!allocations_.empty()) {
    Release(allocations_.begin()->first);
  }
  operations_.reset();  // cuDNN's context still names one of the streams
  groups_.clear();
  if (captured_ != nullptr) {
    cudaGraphExecDestroy(captured_);
  }
  for (const PendingMark& pending : pending_) {
    mark_events_.Give(pending.event);
  }
  // Where Init() failed, some of these were not made.
  for (cudaEvent_t event : {uploaded_, computed_}) {
    if (event != nullptr) {
      cudaEventDestroy(event);
    }
  }
  for (cudaStream_t stream : {compute_, upload_, download_, aside_}) {
    if (stream != nullptr) {
      cudaStreamDestroy(stream);
    }
  }
}

void CudaBackend::Keep(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    Keep(ToStatus(error, what));
  }
}

void CudaBackend::UseDevice() {
  Keep(cudaSetDevice(options_.device), "cudaSetDevice");
}

absl::Status CudaBackend::TakeStatus() {
  return std::exchange(status_, absl::OkStatus());
}

DeviceUsage CudaBackend::Usage() {
  usage_.busy_ns = busy_.busy_ns();
  usage_.bytes_used =
      bytes_used_ + operations_->scratch_bytes() + peer_copy_.bytes();
  // The driver needs longer to answer than a small step takes.
  const auto now = std::chrono::steady_clock::now();
  if (now - usage_time_ > kMemoryLookEvery) {
    UseDevice();
    size_t free = 0;
    size_t total = 0;
    Keep(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    usage_.bytes_reserved = static_cast<int64_t>(total - free);
    usage_time_ = now;
  }
  return usage_;
}

// ------------------------------------------------------------------ memory

absl::StatusOr<float*> CudaBackend::Allocate(int64_t elements) {
  WEIR_CHECK(elements >= 0);
  UseDevice();
  // 2^60 elements are more than any device has. Asking for no more than these
  // keeps the number of bytes from overflowing.
  WEIR_ASSIGN_OR_RETURN(
      void* const memory,
      AllocateDevice(std::min(elements, int64_t{1} << 60) * kFloat));
  auto* const device = static_cast<float*>(memory);
  allocations_[device] = {.elements = elements};
  bytes_used_ += elements * kFloat;
  return device;
}

void CudaBackend::Release(float* device) {
  const auto it = allocations_.find(device);
  if (it == allocations_.end()) {
    return;
  }
  UseDevice();
  // Waits for the operations that still use it, and for copies from or to the
  // host memory that is unpinned below.
  Keep(FreeDevice(device), "cudaFree");
  if (it->second.registered_host != nullptr) {
    Keep(cudaHostUnregister(it->second.registered_host), "cudaHostUnregister");
  }
  // The next Allocate may give the same address to another tensor.
  operations_->Forget(device, it->second.elements);
  bytes_used_ -= it->second.elements * kFloat;
  allocations_.erase(it);
}

absl::StatusOr<float*> CudaBackend::MirrorHost(float* host, int64_t elements) {
  WEIR_ASSIGN_OR_RETURN(float* const device, Allocate(elements));
  if (elements == 0) {
    return device;  // nothing to pin, and CUDA would refuse it
  }
  // Copies from and to pinned memory run beside operations; others do not.
  // Portable: the memory is pinned for the other devices of this worker, too.
  const cudaError_t error =
      cudaHostRegister(host, Bytes(elements), cudaHostRegisterPortable);
  if (error == cudaSuccess) {
    allocations_[device].registered_host = host;
  } else {
    cudaGetLastError();  // the mirror works without, so nobody may see it
    // Memory that is registered already, by us or for another device, is
    // pinned, too. Whoever registered it releases it last (Replicas).
    if (error != cudaErrorHostMemoryAlreadyRegistered) {
      LOG_WARN("{}: host memory cannot be pinned, copies will be slower: {}",
               name_, cudaGetErrorString(error));
    }
  }
  return device;
}

// ----------------------------------------------------------- queue and copies

void CudaBackend::JoinUploads() {
  if (uploads_pending_) {
    // The device may idle until the upload is there: that time is not busy.
    Keep(busy_.Close(compute_));
    Keep(cudaEventRecord(uploaded_, upload_), "cudaEventRecord");
    Keep(cudaStreamWaitEvent(compute_, uploaded_, 0), "cudaStreamWaitEvent");
    uploads_pending_ = false;
    compute_pending_ = true;  // a mark behind an upload waits for it
  }
}

void CudaBackend::JoinCompute() {
  JoinUploads();
  if (compute_pending_) {
    // Whoever waits for what follows on download has then also passed the end
    // of this span, so Collect() can count it.
    Keep(busy_.Close(compute_));
    Keep(cudaEventRecord(computed_, compute_), "cudaEventRecord");
    Keep(cudaStreamWaitEvent(download_, computed_, 0), "cudaStreamWaitEvent");
    compute_pending_ = false;
  }
}

void CudaBackend::Upload(float* device, const float* host, int64_t elements) {
  UseDevice();
  // The contract captures no uploads: a graph would copy from the host address
  // of its capture for ever.
  WEIR_CHECK(!capturing_);
  Keep(cudaMemcpyAsync(device, host, Bytes(elements), cudaMemcpyHostToDevice,
                       upload_),
       "copy to the device");
  // The next operation joins: one event for all uploads in between.
  uploads_pending_ = true;
  operations_->OnWrite(device, elements);
}

void CudaBackend::UploadAside(float* device, const float* host,
                              int64_t elements) {
  UseDevice();
  WEIR_CHECK(!capturing_);
  Keep(cudaMemcpyAsync(device, host, Bytes(elements), cudaMemcpyHostToDevice,
                       aside_),
       "copy to the device");
  aside_pending_ = true;
  operations_->OnWrite(device, elements);
}

void CudaBackend::JoinUploadsAside() {
  if (aside_pending_) {
    UseDevice();
    // As JoinUploads.
    Keep(busy_.Close(compute_));
    Keep(cudaEventRecord(uploaded_, aside_), "cudaEventRecord");
    Keep(cudaStreamWaitEvent(compute_, uploaded_, 0), "cudaStreamWaitEvent");
    aside_pending_ = false;
    compute_pending_ = true;
  }
}

void CudaBackend::HostPages::OnAllocate(void* pages, size_t bytes) {
  cudaSetDevice(backend_->options_.device);
  const cudaError_t error =
      cudaHostRegister(pages, bytes, cudaHostRegisterPortable);
  if (error == cudaSuccess) {
    MutexLock lock(&mutex_);
    locked_.insert(pages);
  } else {
    cudaGetLastError();  // copies work without, so nobody may see it
    LOG_WARN("host memory cannot be pinned, copies will be slower: {}",
             cudaGetErrorString(error));
  }
}

void CudaBackend::HostPages::OnFree(void* pages) {
  MutexLock lock(&mutex_);
  if (locked_.erase(pages) > 0) {
    cudaSetDevice(backend_->options_.device);
    for (cudaStream_t stream : {backend_->upload_, backend_->aside_}) {
      cudaStreamSynchronize(stream);
    }
    cudaHostUnregister(pages);
  }
}

void CudaBackend::Download(float* host, const float* device, int64_t elements) {
  UseDevice();
  JoinCompute();
  Keep(cudaMemcpyAsync(host, device, Bytes(elements), cudaMemcpyDeviceToHost,
                       download_),
       "copy from the device");
}

uint64_t CudaBackend::Mark() {
  UseDevice();
  JoinCompute();
  if (capturing_) {
    // An event that a graph records still tells the host of the replay before.
    // A flag does not: the graph copies the number of the replay into it. Marks
    // over the bound are counted, and EndCapture refuses them.
    if (captured_marks_ < kCaptureMarksMax) {
      Keep(cudaMemcpyAsync(flags_.host() + captured_marks_, step_.device(),
                           sizeof(uint64_t), cudaMemcpyDeviceToHost, download_),
           "flag of a mark");
    }
    return static_cast<uint64_t>(++captured_marks_);
  }
  PendingMark pending{.mark = ++mark_};
  Keep(mark_events_.Take(&pending.event));
  // On download, which has joined compute: behind all three streams.
  Keep(cudaEventRecord(pending.event, download_), "cudaEventRecord");
  pending_.push_back(pending);
  return mark_;
}

bool CudaBackend::Passed(const PendingMark& pending) {
  if (pending.flag >= 0) {
    // The device writes the flag. Acquire: what it wrote to the host before
    // is seen by whoever has seen the flag.
    return std::atomic_ref<uint64_t>(flags_.host()[pending.flag])
               .load(std::memory_order_acquire) >= pending.value;
  }
  return !NotReady(cudaEventQuery(pending.event), "operation");
}

bool CudaBackend::NotReady(cudaError_t error, const char* what) {
  if (error == cudaErrorNotReady) {
    cudaGetLastError();  // it would be taken for the next kernel's
    return true;
  }
  // An error here belongs to an earlier operation: kernels fail late.
  Keep(error, what);
  return false;
}

void CudaBackend::PopMark() {
  mark_events_.Give(pending_.front().event);  // null for a flag
  pending_.pop_front();
}

bool CudaBackend::Reached(uint64_t mark) {
  UseDevice();
  // Marks are reached in their order, so the first that is not decides.
  while (!pending_.empty() && pending_.front().mark <= mark) {
    if (!Passed(pending_.front())) {
      return false;
    }
    PopMark();
  }
  return true;
}

void CudaBackend::WaitForFlag(const PendingMark& pending) {
  // CUDA has no call that waits for a flag. The second look at it, after the
  // stream was found idle, sees a flag that was set between the two.
  while (!Passed(pending)) {
    if (!NotReady(cudaStreamQuery(compute_), "captured step") &&
        !Passed(pending)) {
      Keep(absl::InternalError("a captured step ended without its marks"));
      return;
    }
    std::this_thread::yield();
  }
}

void CudaBackend::Wait(uint64_t mark) {
  UseDevice();
  while (!pending_.empty() && pending_.front().mark <= mark) {
    const PendingMark& front = pending_.front();
    if (front.flag >= 0) {
      WaitForFlag(front);
    } else {
      Keep(cudaEventSynchronize(front.event), "operation");
    }
    PopMark();
  }
  // Here and not in Reached(), which has to be quick.
  Keep(busy_.Collect());
}

// -------------------------------------------------------------- operations

void CudaBackend::Run(const Operation& operation) {
  UseDevice();
  JoinUploads();
  if (!capturing_) {
    Keep(busy_.Open(compute_));
  }
  Keep(operations_->Run(compute_, operation));
  compute_pending_ = true;
}

void CudaBackend::SetKeys(std::span<const uint64_t> keys) {
  UseDevice();
  // The keys may need more memory, which I2 forbids in a capture. A captured
  // dropout reads them from the device, so a replay has those of its step.
  WEIR_CHECK(!capturing_);
  Keep(operations_->SetKeys(upload_, keys));
  uploads_pending_ = true;
}

// ----------------------------------------------------------------- capture

bool CudaBackend::BeginCapture() {
  UseDevice();
  // I2: a capture may not wait for an event from outside, so uploads are joined
  // now, and no span may end in it.
  JoinUploads();
  Keep(busy_.Close(compute_));
  if (captured_ != nullptr) {
    Keep(cudaGraphExecDestroy(std::exchange(captured_, nullptr)),
         "cudaGraphExecDestroy");
  }
  // What failed until now is no failure of the capture: the step ends with it.
  if (!status_.ok()) {
    return false;
  }
  if (cudaStreamBeginCapture(compute_, cudaStreamCaptureModeThreadLocal) !=
      cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  // A copy that is fresh now would not be rounded in the capture, and a replay
  // would multiply the values of today.
  operations_->OnWriteAll();
  capturing_ = true;
  captured_marks_ = 0;
  compute_pending_ = true;  // so that the first mark joins download
  return true;
}

absl::Status CudaBackend::EndCapture() {
  WEIR_CHECK(capturing_);
  // CUDA refuses a capture one of whose streams was not joined back.
  if (captured_marks_ > 0) {
    Keep(cudaEventRecord(computed_, download_), "cudaEventRecord");
    Keep(cudaStreamWaitEvent(compute_, computed_, 0), "cudaStreamWaitEvent");
  }
  cudaGraph_t graph = nullptr;
  absl::Status status =
      ToStatus(cudaStreamEndCapture(compute_, &graph), "cudaStreamEndCapture");
  capturing_ = false;
  // The copies that were marked valid have been recorded, not made.
  operations_->OnWriteAll();
  if (status.ok() && captured_marks_ > kCaptureMarksMax) {
    status = absl::InternalError(absl::StrCat(
        captured_marks_, " marks in one capture, over ", kCaptureMarksMax));
  }
  if (status.ok()) {
    status = ToStatus(cudaGraphInstantiate(&captured_, graph, 0),
                      "cudaGraphInstantiate");
  }
  if (graph != nullptr) {
    cudaGraphDestroy(graph);
  }
  status.Update(TakeStatus());
  if (!status.ok()) {
    cudaGetLastError();  // it would be taken for the next kernel's
  }
  return status;
}

uint64_t CudaBackend::Replay() {
  UseDevice();
  WEIR_CHECK(captured_ != nullptr);
  const uint64_t base = mark_;
  // The contract says that the queue has passed the last replay, so its copy of
  // this word is over.
  *step_.host() = ++replays_;
  Keep(cudaMemcpyAsync(step_.device(), step_.host(), sizeof(uint64_t),
                       cudaMemcpyHostToDevice, compute_),
       "number of the step");
  JoinUploads();
  Keep(busy_.Open(compute_));
  Keep(cudaGraphLaunch(captured_, compute_), "cudaGraphLaunch");
  Keep(busy_.Close(compute_));
  compute_pending_ = true;
  operations_->OnWriteAll();
  // Mark() gave 1, 2, ... in the capture: added to `base` these are the marks
  // of this replay.
  for (int i = 0; i < captured_marks_; ++i) {
    pending_.push_back({.mark = ++mark_, .flag = i, .value = replays_});
  }
  return base;
}

}  // namespace weir::cuda
