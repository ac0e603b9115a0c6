#include "tests/worker/compute/cuda/emulator/scheduler.h"

#include <algorithm>
#include <cstdlib>

#include "common/base/mutex.h"

namespace weir_emulator {
namespace {

constexpr size_t kAlignment = 256;
constexpr int kGarbage = 0xff;
constexpr int64_t kOperationNs = 1000;  // by the emulated clock
constexpr uint64_t kPolledMax = 3;

struct Global {
  weir::Mutex mutex;
  weir::CondVar changed;  // an operation that ran unlocked has ended
  std::unique_ptr<Machine> machine =
      std::make_unique<Machine>(ConfigFromEnvironment());
};

Global& TheGlobal() {
  static Global& global = *new Global;
  return global;
}

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local bool in_host_function = false;

bool Breaks(cudaError_t error) {
  return error == cudaErrorECCUncorrectable ||
         (error >= cudaErrorIllegalAddress &&
          error <= cudaErrorLaunchTimeout) ||
         error == cudaErrorAssert ||
         (error >= cudaErrorHardwareStackError &&
          error <= cudaErrorLaunchFailure);
}

// Null where the call may go on.
cudaError_t Refusal(Machine& machine, const std::string& function) {
  if (machine.config.driver_missing) {
    return cudaErrorInsufficientDriver;
  }
  if (in_host_function) {
    return cudaErrorNotPermitted;
  }
  if (machine.sticky != cudaSuccess) {
    return machine.sticky;
  }
  auto& injected = machine.injected;
  for (auto it = injected.begin(); it != injected.end(); ++it) {
    if (it->first == function) {
      const cudaError_t error = it->second;
      injected.erase(it);
      machine.sticky = Breaks(error) ? error : cudaSuccess;
      return error;
    }
  }
  return cudaSuccess;
}

}  // namespace

int& CurrentDevice() { return current_device; }
cudaError_t& LastError() { return last_error; }

cudaError_t Call(const char* function,
                 const std::function<cudaError_t(Machine&)>& body) {
  weir::MutexLock lock(&TheGlobal().mutex);
  Machine& machine = *TheGlobal().machine;
  cudaError_t error = Refusal(machine, function);
  if (error == cudaSuccess) {
    error = body(machine);
  }
  if (error != cudaSuccess) {
    last_error = error;
  }
  return error;
}

void RunUnlocked(const Work& host_function) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  TheGlobal().mutex.Unlock();
  in_host_function = true;
  host_function();
  in_host_function = false;
  TheGlobal().mutex.Lock();
}

void Configure(const Config& config) {
  weir::MutexLock lock(&TheGlobal().mutex);
  TheGlobal().machine = std::make_unique<Machine>(config);
  current_device = 0;
  last_error = cudaSuccess;
}

Counters Counts() {
  weir::MutexLock lock(&TheGlobal().mutex);
  return TheGlobal().machine->Count();
}

void FailNext(cudaError_t error, const char* function) {
  weir::MutexLock lock(&TheGlobal().mutex);
  TheGlobal().machine->injected.emplace_back(function, error);
}

Machine::Machine(const Config& config_in)
    : config(config_in), random(config_in.seed) {
  for (int device = 0; device < config.devices; ++device) {
    OpenStream(device, /*blocking=*/true)->is_default = true;
  }
}

Machine::~Machine() {
  for (const auto& [start, block] : blocks_) {
    if (block.owned) {
      std::free(reinterpret_cast<void*>(start));
    }
  }
  for (CUevent_st* event : events) {
    delete event;
  }
  for (CUgraph_st* graph : graphs) {
    delete graph;
  }
  for (CUgraphExec_st* exec : graph_execs) {
    delete exec;
  }
}

// ----------------------------------------------------------------- streams

CUstream_st* Machine::Find(cudaStream_t handle, int device) {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    return device < config.devices ? streams_[static_cast<size_t>(device)].get()
                                   : nullptr;
  }
  for (const auto& stream : streams_) {
    if (stream.get() == handle && !stream->destroyed) {
      return handle;
    }
  }
  return nullptr;
}

CUstream_st* Machine::OpenStream(int device, bool blocking) {
  streams_.push_back(std::make_unique<CUstream_st>());
  streams_.back()->device = device;
  streams_.back()->blocking = blocking;
  return streams_.back().get();
}

void Machine::CloseStream(CUstream_st* stream) {
  stream->destroyed = true;
  std::erase_if(streams_, [](const auto& open) {
    return open->destroyed && open->queue.empty();
  });
}

cudaError_t Machine::Enqueue(CUstream_st* stream, Work run,
                             OperationPtr* queued) {
  if (queued != nullptr) {
    queued->reset();
  }
  if (Capture* const capture = stream->capture.get()) {
    if (!capture->valid) {
      return cudaErrorStreamCaptureInvalidated;
    }
    // I3: recorded, and queued nowhere.
    capture->nodes.push_back({std::move(run), stream->frontier});
    stream->frontier = {capture->nodes.size() - 1};
    return cudaSuccess;
  }
  auto operation = std::make_shared<Operation>();
  operation->run = std::move(run);
  const auto after = [&operation](const CUstream_st& other) {
    if (other.last != nullptr && other.last->state != Operation::State::kDone) {
      operation->after.push_back(other.last);
    }
  };
  // I1: the default stream, in both directions.
  if (!stream->is_default && stream->blocking) {
    after(*Find(nullptr, stream->device));
  }
  for (const auto& other : streams_) {
    if (!stream->is_default || other.get() == stream || !other->blocking ||
        other->device != stream->device) {
      continue;
    }
    if (other->capture != nullptr) {
      other->capture->valid = false;
      return cudaErrorStreamCaptureImplicit;
    }
    after(*other);
  }
  operation->stream = stream;
  operation->sequence = ++stream->sequence;
  stream->queue.push_back(operation);
  stream->last = operation;
  if (queued != nullptr) {
    *queued = std::move(operation);
  }
  return cudaSuccess;
}

cudaError_t Machine::Record(CUstream_st* stream, CUevent_st* event) {
  if (stream->capture != nullptr) {
    if (!stream->capture->valid) {
      return cudaErrorStreamCaptureInvalidated;
    }
    event->capture = stream->capture;
    event->nodes = stream->frontier;
    event->record = nullptr;
    return cudaSuccess;
  }
  OperationPtr record;
  const cudaError_t error = Enqueue(
      stream, [] {}, &record);
  if (error == cudaSuccess) {
    event->capture = nullptr;
    event->record = std::move(record);
  }
  return error;
}

cudaError_t Machine::WaitEvent(CUstream_st* stream, CUevent_st* event) {
  Capture* const ours = stream->capture.get();
  Capture* const theirs = event->capture.get();
  if (ours != nullptr && !ours->valid) {
    return cudaErrorStreamCaptureInvalidated;
  }
  if (theirs == nullptr) {
    if (event->record == nullptr) {
      return cudaSuccess;
    }
    if (ours != nullptr) {
      ours->valid = false;
      return cudaErrorStreamCaptureIsolation;
    }
    OperationPtr wait;
    const cudaError_t error = Enqueue(
        stream, [] {}, &wait);
    if (error == cudaSuccess &&
        event->record->state != Operation::State::kDone) {
      wait->after.push_back(event->record);
    }
    return error;
  }
  if (theirs->ended) {
    return cudaErrorCapturedEvent;
  }
  if (ours != nullptr && ours != theirs) {
    ours->valid = theirs->valid = false;
    return cudaErrorStreamCaptureMerge;
  }
  if (!theirs->valid) {
    return cudaErrorStreamCaptureInvalidated;
  }
  if (stream->is_default) {
    theirs->valid = false;
    return cudaErrorStreamCaptureImplicit;
  }
  stream->capture = event->capture;
  stream->frontier.insert(event->nodes.begin(), event->nodes.end());
  return cudaSuccess;
}

std::vector<OperationPtr> Machine::Tail(CUstream_st* stream) {
  std::vector<OperationPtr> tail;
  for (const auto& other : streams_) {
    const bool counts =
        other.get() == stream || (stream->is_default && other->blocking &&
                                  other->device == stream->device);
    if (counts && other->last != nullptr) {
      tail.push_back(other->last);
    }
  }
  return tail;
}

bool Machine::Done(const std::vector<OperationPtr>& goals) {
  return std::all_of(goals.begin(), goals.end(), [](const auto& goal) {
    return goal->state == Operation::State::kDone;
  });
}

// How far each stream has to run for the goals.
std::map<CUstream_st*, uint64_t> Machine::Needed(
    const std::vector<OperationPtr>& goals) const {
  std::map<CUstream_st*, uint64_t> needed;
  std::vector<OperationPtr> open = goals;
  while (!open.empty()) {
    const OperationPtr goal = open.back();
    open.pop_back();
    if (goal->state == Operation::State::kDone) {
      continue;
    }
    uint64_t& until = needed[goal->stream];
    for (const OperationPtr& operation : goal->stream->queue) {
      if (operation->sequence > until &&
          operation->sequence <= goal->sequence) {
        open.insert(open.end(), operation->after.begin(),
                    operation->after.end());
      }
    }
    until = std::max(until, goal->sequence);
  }
  return needed;
}

std::vector<CUstream_st*> Machine::Ready() const {
  std::vector<CUstream_st*> ready;
  for (const auto& stream : streams_) {
    // I1: only the first of a stream, and only behind what it waits for.
    if (!stream->queue.empty() &&
        stream->queue.front()->state == Operation::State::kQueued &&
        Done(stream->queue.front()->after)) {
      ready.push_back(stream.get());
    }
  }
  return ready;
}

void Machine::Run(CUstream_st* stream) {
  const OperationPtr operation = stream->queue.front();
  operation->state = Operation::State::kRunning;
  operation->run();
  operation->run = nullptr;
  operation->after.clear();
  operation->state = Operation::State::kDone;
  clock_ns_ += kOperationNs;
  operation->done_ns = clock_ns_;
  stream->queue.pop_front();
  if (stream->destroyed) {
    CloseStream(stream);
  }
  TheGlobal().changed.NotifyAll();
}

// The analysis does not see that Call() holds the mutex.
void Machine::RunUntil(const std::vector<OperationPtr>& goals)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const bool others_first = random.Below(2) == 0;  // I2's coin
  while (!Done(goals)) {
    const auto needed = Needed(goals);
    std::vector<CUstream_st*> wanted;
    std::vector<CUstream_st*> others;
    for (CUstream_st* stream : Ready()) {
      const auto it = needed.find(stream);
      const bool want =
          it != needed.end() && stream->queue.front()->sequence <= it->second;
      (want ? wanted : others).push_back(stream);
    }
    const auto& from = others_first && !others.empty() ? others : wanted;
    if (!from.empty()) {
      Run(from[random.Below(from.size())]);
    } else {
      // Only host functions that other threads run are in the way.
      TheGlobal().changed.Wait(&TheGlobal().mutex);
    }
  }
}

void Machine::RunDevice(int device) {
  std::vector<OperationPtr> goals;
  for (const auto& stream : streams_) {
    if (stream->device == device && stream->last != nullptr) {
      goals.push_back(stream->last);
    }
  }
  RunUntil(goals);
}

void Machine::RunSome() {
  for (uint64_t count = random.Below(kPolledMax + 1); count > 0; --count) {
    const std::vector<CUstream_st*> ready = Ready();
    if (ready.empty()) {
      return;
    }
    Run(ready[random.Below(ready.size())]);
  }
}

// ----------------------------------------------------------------- capture

cudaError_t Machine::BeginCapture(CUstream_st* stream,
                                  cudaStreamCaptureMode mode) {
  if (stream->is_default) {
    return cudaErrorStreamCaptureUnsupported;
  }
  if (stream->capture != nullptr) {
    return cudaErrorIllegalState;
  }
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->capture->mode = mode;
  stream->capture->thread = std::this_thread::get_id();
  stream->frontier.clear();
  captures_.push_back(stream->capture);
  return cudaSuccess;
}

cudaError_t Machine::EndCapture(CUstream_st* stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const CapturePtr capture = stream->capture;
  if (capture == nullptr) {
    return cudaErrorIllegalState;
  }
  if (capture->origin != stream) {
    capture->valid = false;
    return cudaErrorStreamCaptureUnmatched;
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id()) {
    return cudaErrorStreamCaptureWrongThread;
  }
  // Every other stream's last operation must come before the origin's last.
  std::set<size_t> joined = stream->frontier;
  for (size_t i = capture->nodes.size(); i-- > 0;) {
    if (joined.count(i) != 0) {
      joined.insert(capture->nodes[i].after.begin(),
                    capture->nodes[i].after.end());
    }
  }
  bool all_joined = true;
  for (const auto& other : streams_) {
    if (other->capture != capture) {
      continue;
    }
    all_joined = all_joined &&
                 std::includes(joined.begin(), joined.end(),
                               other->frontier.begin(), other->frontier.end());
    other->capture = nullptr;
    other->frontier.clear();
  }
  capture->ended = true;
  std::erase(captures_, capture);
  if (!capture->valid) {
    return cudaErrorStreamCaptureInvalidated;
  }
  if (!all_joined) {
    return cudaErrorStreamCaptureUnjoined;
  }
  *graph = new CUgraph_st{std::move(capture->nodes)};
  graphs.insert(*graph);
  return cudaSuccess;
}

cudaError_t Machine::CheckUnsafeCall() {
  cudaError_t error = cudaSuccess;
  for (const CapturePtr& capture : captures_) {
    if (capture->mode == cudaStreamCaptureModeGlobal ||
        (capture->mode == cudaStreamCaptureModeThreadLocal &&
         capture->thread == std::this_thread::get_id())) {
      capture->valid = false;
      error = cudaErrorStreamCaptureUnsupported;
    }
  }
  return error;
}

bool Machine::Capturing(int device) const {
  return std::any_of(
      streams_.begin(), streams_.end(), [device](const auto& stream) {
        return stream->device == device && stream->capture != nullptr;
      });
}

void Machine::RunNodes(const std::vector<Node>& nodes) {
  std::vector<size_t> waits(nodes.size());
  std::vector<std::vector<size_t>> followers(nodes.size());
  std::vector<size_t> ready;
  for (size_t i = 0; i < nodes.size(); ++i) {
    waits[i] = nodes[i].after.size();
    for (const size_t before : nodes[i].after) {
      followers[before].push_back(i);
    }
    if (waits[i] == 0) {
      ready.push_back(i);
    }
  }
  while (!ready.empty()) {
    std::swap(ready[random.Below(ready.size())], ready.back());
    const size_t node = ready.back();
    ready.pop_back();
    nodes[node].run();
    for (const size_t follower : followers[node]) {
      if (--waits[follower] == 0) {
        ready.push_back(follower);
      }
    }
  }
}

// ------------------------------------------------------------------ memory

void* Machine::Allocate(int64_t bytes, int device) {
  void* memory = nullptr;
  if ((device >= 0 && BytesUsed(device) + bytes > config.bytes_per_device) ||
      posix_memalign(&memory, kAlignment, static_cast<size_t>(bytes)) != 0) {
    return nullptr;
  }
  std::memset(memory, kGarbage, static_cast<size_t>(bytes));
  blocks_[reinterpret_cast<uintptr_t>(memory)] = {bytes, device, true};
  return memory;
}

bool Machine::Register(void* memory, int64_t bytes) {
  const auto start = reinterpret_cast<uintptr_t>(memory);
  auto next = blocks_.lower_bound(start);
  const bool overlaps_next =
      next != blocks_.end() && next->first < start + static_cast<size_t>(bytes);
  if (overlaps_next || PlaceOf(memory, 1) != Place::kPageable) {
    return false;
  }
  blocks_[start] = {bytes, -1, false};
  return true;
}

bool Machine::Free(void* memory, bool on_device, bool owned) {
  const auto it = blocks_.find(reinterpret_cast<uintptr_t>(memory));
  if (it == blocks_.end() || (it->second.device >= 0) != on_device ||
      it->second.owned != owned) {
    return false;
  }
  blocks_.erase(it);
  if (owned) {
    std::free(memory);
  }
  return true;
}

Place Machine::PlaceOf(const void* memory, int64_t bytes) const {
  const auto start = reinterpret_cast<uintptr_t>(memory);
  auto it = blocks_.upper_bound(start);
  if (it == blocks_.begin()) {
    return Place::kPageable;
  }
  --it;
  const uintptr_t end = it->first + static_cast<uintptr_t>(it->second.bytes);
  if (start >= end) {
    return Place::kPageable;
  }
  if (start + static_cast<uintptr_t>(bytes) > end) {
    return Place::kInvalid;
  }
  return it->second.device >= 0 ? Place::kDevice : Place::kPinned;
}

void Machine::CheckReach(const char* what, const volatile void* memory,
                         int64_t bytes, int device) const {
  const auto start = reinterpret_cast<uintptr_t>(memory);
  auto it = blocks_.upper_bound(start);
  if (it != blocks_.begin()) {
    --it;
    const uintptr_t end = it->first + static_cast<uintptr_t>(it->second.bytes);
    const int owner = it->second.device;
    if (start + static_cast<uintptr_t>(bytes) <= end &&
        (owner < 0 || owner == device || peers.count({device, owner}) != 0)) {
      return;
    }
  }
  Die("%s: %lld bytes at %p are not within one block of memory that device "
      "%d can reach",
      what, static_cast<long long>(bytes), const_cast<const void*>(memory),
      device);
}

int64_t Machine::BytesUsed(int device) const {
  int64_t bytes = 0;
  for (const auto& [start, block] : blocks_) {
    bytes += block.device == device ? block.bytes : 0;
  }
  return bytes;
}

Counters Machine::Count() const {
  Counters counters;
  counters.malloc_calls = malloc_calls;
  counters.launches = launches;
  for (const auto& [start, block] : blocks_) {
    (block.device >= 0 ? counters.device_bytes : counters.pinned_bytes) +=
        block.bytes;
    counters.device_blocks += block.device >= 0 ? 1 : 0;
  }
  for (const auto& stream : streams_) {
    counters.streams += stream->is_default || stream->destroyed ? 0 : 1;
    counters.pending += static_cast<int64_t>(stream->queue.size());
  }
  counters.events = static_cast<int64_t>(events.size());
  counters.graphs = static_cast<int64_t>(graphs.size() + graph_execs.size());
  return counters;
}

}  // namespace weir_emulator
