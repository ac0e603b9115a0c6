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
// cuBLASLt's bfloat16 products begin there.
constexpr int kOldestMajor = 8;
constexpr std::chrono::seconds kMemoryLookEvery{1};

size_t Bytes(int64_t elements) {
  return static_cast<size_t>(elements) * sizeof(float);
}

}  // namespace

// ------------------------------------------------------------------ set-up

CudaBackend::CudaBackend(const Options& options) : options_(options) {}

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
  for (cudaStream_t* stream : {&compute_, &upload_, &download_}) {
    WEIR_RETURN_IF_ERROR(
        ToStatus(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking),
                 "cudaStreamCreate"));
  }
  for (cudaEvent_t* event : {&uploaded_, &computed_}) {
    WEIR_RETURN_IF_ERROR(
        ToStatus(cudaEventCreateWithFlags(event, cudaEventDisableTiming),
                 "cudaEventCreate"));
  }
  WEIR_RETURN_IF_ERROR(GrowWords(1, &step_));
  WEIR_RETURN_IF_ERROR(GrowWords(kCaptureMarksMax, &flags_));
  std::fill_n(flags_.host, kCaptureMarksMax, 0);
  WEIR_ASSIGN_OR_RETURN(
      matmul_, LtMatMul::Create(options_.precision == Precision::kTf32));
  const bool bf16 = options_.precision == Precision::kBf16;
  own_convolution_ = std::make_unique<Convolution>(
      Convolution::Options{.matmul = matmul_.get(),
                           .copies = bf16 ? &copies_ : nullptr,
                           .column_bytes_max = options_.column_bytes_max});
  return absl::OkStatus();
}

// A model without convolutions never pays for cuDNN, which loads for long and
// takes device memory. Never first in a capture: what is captured has run.
Convolutions* CudaBackend::Convolver() {
  if (convolution_ != nullptr) {
    return convolution_;
  }
  convolution_ = own_convolution_.get();
  // cuDNN gives no float32 results of bfloat16 factors.
  if (options_.cudnn_library != kNoCudnn &&
      options_.precision != Precision::kBf16) {
    absl::StatusOr<std::unique_ptr<CudnnConvolution>> cudnn = OpenCudnn();
    if (cudnn.ok()) {
      cudnn_ = *std::move(cudnn);
      convolution_ = cudnn_.get();
    } else {
      cudaGetLastError();  // cuDNN's, if any; a broken device's comes again
      LOG_INFO("{}: convolutions are Weir's own, without cuDNN: {}", name_,
               std::string(cudnn.status().message()));
    }
  }
  return convolution_;
}

absl::StatusOr<std::unique_ptr<CudnnConvolution>> CudaBackend::OpenCudnn() {
  CudnnConvolution::Options options;
  options.own = own_convolution_.get();
  options.tf32 = options_.precision == Precision::kTf32;
  options.deterministic = options_.deterministic;
  if (options_.cudnn != nullptr) {
    options.api = *options_.cudnn;
  } else {
    const std::string& library = options_.cudnn_library;
    WEIR_ASSIGN_OR_RETURN(options.api,
                          LoadCudnn(library.empty() ? kCudnnLibrary : library));
  }
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<CudnnConvolution> cudnn,
                        CudnnConvolution::Create(options));
  LOG_INFO("{}: convolutions are cuDNN {}'s", name_, options.api.get_version());
  return cudnn;
}

CudaBackend::~CudaBackend() {
  UseDevice();
  cudaDeviceSynchronize();
  cudnn_.reset();  // before its stream
  groups_.clear();
  while (!allocations_.empty()) {
    Release(allocations_.begin()->first);
  }
  for (PinnedWords* words : {&keys_, &step_, &flags_}) {
    cudaFreeHost(words->host);
    FreeDevice(words->device);
  }
  if (captured_ != nullptr) {
    cudaGraphExecDestroy(captured_);
  }
  for (const PendingMark& pending : pending_) {
    mark_events_.free.push_back(pending.event);
  }
  for (const Span& span : spans_) {
    span_events_.free.push_back(span.begin);
    span_events_.free.push_back(span.end);
  }
  span_events_.free.push_back(open_span_.begin);
  std::vector<cudaEvent_t> events = {uploaded_, computed_};
  for (const EventPool* pool : {&mark_events_, &span_events_}) {
    events.insert(events.end(), pool->free.begin(), pool->free.end());
  }
  for (cudaEvent_t event : events) {
    if (event != nullptr) {
      cudaEventDestroy(event);
    }
  }
  for (cudaStream_t stream : {compute_, upload_, download_}) {
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
  usage_.busy_ns = busy_ns_;
  usage_.bytes_used =
      bytes_used_ + partials_.bytes() + copies_.bytes() + peer_copy_.bytes() +
      (convolution_ != nullptr ? convolution_->scratch_bytes() : 0) +
      LtMatMul::kWorkspaceBytes;
  // The driver takes longer for this than a small step has.
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
  // 2^60 elements are more than any device has; avoids overflow below.
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
  // Waits for what still uses it.
  Keep(FreeDevice(device), "cudaFree");
  if (it->second.registered_host != nullptr) {
    Keep(cudaHostUnregister(it->second.registered_host), "cudaHostUnregister");
  }
  copies_.Forget(device, it->second.elements);
  bytes_used_ -= it->second.elements * kFloat;
  allocations_.erase(it);
}

absl::StatusOr<float*> CudaBackend::MirrorHost(float* host, int64_t elements) {
  WEIR_ASSIGN_OR_RETURN(float* const device, Allocate(elements));
  const cudaError_t error =
      elements == 0
          ? cudaSuccess
          : cudaHostRegister(host, Bytes(elements), cudaHostRegisterPortable);
  if (error == cudaSuccess && elements > 0) {
    allocations_[device].registered_host = host;
  } else if (error != cudaSuccess) {
    cudaGetLastError();  // this one does not stay
    // Registered already, by us or for another device: pinned, too. Who
    // registered it releases it last (Replicas).
    if (error != cudaErrorHostMemoryAlreadyRegistered) {
      LOG_WARN("{}: host memory cannot be pinned, copies will be slower: {}",
               name_, cudaGetErrorString(error));
    }
  }
  return device;
}

absl::Status CudaBackend::GrowWords(size_t count, PinnedWords* words) {
  if (count <= words->capacity) {
    return absl::OkStatus();
  }
  // Waits for what still uses the old ones.
  FreeDevice(words->device);
  cudaFreeHost(words->host);
  *words = {};
  void* host = nullptr;
  WEIR_RETURN_IF_ERROR(ToStatus(cudaMallocHost(&host, count * sizeof(uint64_t)),
                                "cudaMallocHost"));
  words->host = static_cast<uint64_t*>(host);
  WEIR_ASSIGN_OR_RETURN(
      void* const device,
      AllocateDevice(static_cast<int64_t>(count * sizeof(uint64_t))));
  words->device = static_cast<uint64_t*>(device);
  words->capacity = count;
  return absl::OkStatus();
}

// ----------------------------------------------------------- queue and copies

cudaEvent_t CudaBackend::TakeEvent(EventPool* pool) {
  if (pool->free.empty()) {
    cudaEvent_t event = nullptr;
    Keep(cudaEventCreateWithFlags(&event, pool->flags), "cudaEventCreate");
    return event;
  }
  cudaEvent_t event = pool->free.back();
  pool->free.pop_back();
  return event;
}

void CudaBackend::JoinUploads() {
  if (uploads_pending_) {
    CloseSpan();
    Keep(cudaEventRecord(uploaded_, upload_), "cudaEventRecord");
    Keep(cudaStreamWaitEvent(compute_, uploaded_, 0), "cudaStreamWaitEvent");
    uploads_pending_ = false;
    compute_pending_ = true;  // a mark behind an upload waits for it
  }
}

void CudaBackend::JoinCompute() {
  JoinUploads();
  if (compute_pending_) {
    CloseSpan();
    Keep(cudaEventRecord(computed_, compute_), "cudaEventRecord");
    Keep(cudaStreamWaitEvent(download_, computed_, 0), "cudaStreamWaitEvent");
    compute_pending_ = false;
  }
}

void CudaBackend::OpenSpan() {
  if (open_span_.begin == nullptr && !capturing_) {
    open_span_.begin = TakeEvent(&span_events_);
    Keep(cudaEventRecord(open_span_.begin, compute_), "cudaEventRecord");
  }
}

void CudaBackend::CloseSpan() {
  if (open_span_.begin != nullptr) {
    open_span_.end = TakeEvent(&span_events_);
    Keep(cudaEventRecord(open_span_.end, compute_), "cudaEventRecord");
    spans_.push_back(std::exchange(open_span_, Span()));
  }
}

void CudaBackend::CollectSpans() {
  while (!spans_.empty() &&
         !NotReady(cudaEventQuery(spans_.front().end), "operation")) {
    const Span& span = spans_.front();
    float milliseconds = 0.0f;
    if (cudaEventElapsedTime(&milliseconds, span.begin, span.end) ==
        cudaSuccess) {
      busy_ns_ += static_cast<int64_t>(milliseconds * 1e6f);
    }
    span_events_.free.push_back(span.begin);
    span_events_.free.push_back(span.end);
    spans_.pop_front();
  }
}

void CudaBackend::Upload(float* device, const float* host, int64_t elements) {
  UseDevice();
  WEIR_CHECK(!capturing_);
  Keep(cudaMemcpyAsync(device, host, Bytes(elements), cudaMemcpyHostToDevice,
                       upload_),
       "copy to the device");
  uploads_pending_ = true;
  Wrote(device, elements);
}

void CudaBackend::Download(float* host, const float* device, int64_t elements) {
  UseDevice();
  JoinCompute();
  Keep(cudaMemcpyAsync(host, device, Bytes(elements), cudaMemcpyDeviceToHost,
                       download_),
       "copy from the device");
}

const float* CudaBackend::Stage(float* device, const float* host,
                                int64_t elements) {
  Upload(device, host, elements);
  return device;
}

const float* CudaBackend::Fetch(float* host, const float* device,
                                int64_t elements) {
  Download(host, device, elements);
  return host;
}

uint64_t CudaBackend::Mark() {
  UseDevice();
  JoinCompute();
  if (capturing_) {
    if (captured_marks_ < kCaptureMarksMax) {
      Keep(cudaMemcpyAsync(flags_.host + captured_marks_, step_.device,
                           sizeof(uint64_t), cudaMemcpyDeviceToHost, download_),
           "flag of a mark");
    }
    return static_cast<uint64_t>(++captured_marks_);
  }
  PendingMark pending{.mark = ++mark_, .event = TakeEvent(&mark_events_)};
  Keep(cudaEventRecord(pending.event, download_), "cudaEventRecord");
  pending_.push_back(pending);
  return mark_;
}

bool CudaBackend::Passed(const PendingMark& pending) {
  if (pending.flag >= 0) {
    return std::atomic_ref<uint64_t>(flags_.host[pending.flag])
               .load(std::memory_order_acquire) == pending.value;
  }
  return !NotReady(cudaEventQuery(pending.event), "operation");
}

bool CudaBackend::NotReady(cudaError_t error, const char* what) {
  if (error == cudaErrorNotReady) {
    cudaGetLastError();  // it would be taken for the next kernel's
    return true;
  }
  Keep(error, what);  // of an earlier one: kernels fail late
  return false;
}

void CudaBackend::PopMark() {
  if (pending_.front().event != nullptr) {
    mark_events_.free.push_back(pending_.front().event);
  }
  pending_.pop_front();
}

bool CudaBackend::Reached(uint64_t mark) {
  UseDevice();
  while (!pending_.empty() && pending_.front().mark <= mark) {
    if (!Passed(pending_.front())) {
      return false;
    }
    PopMark();
  }
  return true;
}

void CudaBackend::WaitForFlag(const PendingMark& pending) {
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
  CollectSpans();
}

// ----------------------------------------------------------------- capture

bool CudaBackend::BeginCapture() {
  UseDevice();
  JoinUploads();
  CloseSpan();
  if (captured_ != nullptr) {
    Keep(cudaGraphExecDestroy(std::exchange(captured_, nullptr)),
         "cudaGraphExecDestroy");
  }
  if (cudaStreamBeginCapture(compute_, cudaStreamCaptureModeThreadLocal) !=
      cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  copies_.OnWriteAll();  // what a replay rounds, it rounds every time
  capturing_ = true;
  captured_marks_ = 0;
  compute_pending_ = true;  // so that the first mark joins download
  return true;
}

absl::Status CudaBackend::EndCapture() {
  WEIR_CHECK(capturing_);
  // Join download back, or the capture has a loose end.
  if (captured_marks_ > 0) {
    Keep(cudaEventRecord(computed_, download_), "cudaEventRecord");
    Keep(cudaStreamWaitEvent(compute_, computed_, 0), "cudaStreamWaitEvent");
  }
  cudaGraph_t graph = nullptr;
  absl::Status status =
      ToStatus(cudaStreamEndCapture(compute_, &graph), "cudaStreamEndCapture");
  capturing_ = false;
  copies_.OnWriteAll();
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
  return status;
}

uint64_t CudaBackend::Replay() {
  UseDevice();
  WEIR_CHECK(captured_ != nullptr);
  const uint64_t base = mark_;
  *step_.host = ++replays_;
  Keep(cudaMemcpyAsync(step_.device, step_.host, sizeof(uint64_t),
                       cudaMemcpyHostToDevice, compute_),
       "number of the step");
  JoinUploads();
  OpenSpan();
  Keep(cudaGraphLaunch(captured_, compute_), "cudaGraphLaunch");
  CloseSpan();
  compute_pending_ = true;
  copies_.OnWriteAll();
  for (int i = 0; i < captured_marks_; ++i) {
    pending_.push_back({.mark = ++mark_, .flag = i, .value = replays_});
  }
  return base;
}

}  // namespace weir::cuda
