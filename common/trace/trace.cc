#include "common/trace/trace.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/identity.h"

namespace weir {

namespace trace_internal {

std::atomic<bool> on{false};  // I1

void Record(const TraceEvent& event) {
  TraceRecorder::Process()->Record(event);
}

void RecordSlice(const char* name, int64_t begin_ns, int64_t end_ns) {
  TraceEvent event = {};
  event.name = name;
  event.begin_ns = begin_ns;
  event.end_ns = end_ns;
  Record(event);
}

void RecordSpan(const char* name, int64_t begin_ns, TraceEvent* event) {
  event->name = name;
  event->begin_ns = begin_ns;
  event->end_ns = Clock::Real()->NowNs();
  Record(*event);
}

}  // namespace trace_internal

namespace {

// The name that this thread gave itself.
std::string& LaneName() {
  thread_local std::string name;
  return name;
}

}  // namespace

void NameTraceLane(std::string name) { LaneName() = std::move(name); }

uint64_t TraceFlowOf(uint64_t history, int shard, uint32_t slot,
                     uint64_t sequence, uint32_t block) {
  // MurmurHash3's 64-bit finalizer, over one number after another. Flows of one
  // trace must not meet by accident; nothing depends on more.
  uint64_t hash = history;
  for (const uint64_t part : {static_cast<uint64_t>(shard), uint64_t{slot},
                              sequence, uint64_t{block}}) {
    hash ^= part + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
    hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdu;
    hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53u;
    hash ^= hash >> 33;
  }
  return hash;
}

TraceRecorder* TraceRecorder::Process() {
  static auto* const recorder = new TraceRecorder();
  return recorder;
}

TraceRecorder::TraceRecorder() : process_(RandomId()) {}

absl::Status TraceRecorder::Start(uint64_t trace,
                                  std::chrono::milliseconds duration,
                                  size_t events_max) {
  MutexLock lock(&mutex_);
  EndIfOver();
  if (TraceIsOn()) {
    if (trace == trace_) {
      return absl::OkStatus();
    }
    const int64_t left_ns = end_ns_ - Clock::Real()->NowNs();
    return absl::ResourceExhaustedError(
        absl::StrCat("another trace is being taken; ask again in ",
                     left_ns / 1'000'000'000 + 1, " s"));
  }
  Drop();
  trace_ = trace;
  begin_ns_ = Clock::Real()->NowNs();
  end_ns_ = begin_ns_ + std::chrono::nanoseconds(duration).count();
  events_max_ = std::min(events_max, kTraceEventsMax);
  // Last: whoever sees it on sees all of the above, and a thread that has seen
  // an earlier one finds that its buffer is of another recording.
  ++number_;
  trace_internal::on.store(true, std::memory_order_release);
  return absl::OkStatus();
}

void TraceRecorder::EndIfOver() {
  if (TraceIsOn() && Clock::Real()->NowNs() >= end_ns_) {
    trace_internal::on = false;
  }
}

void TraceRecorder::EndForTest() {
  MutexLock lock(&mutex_);
  end_ns_ = Clock::Real()->NowNs();
  EndIfOver();
}

void TraceRecorder::Drop() {
  for (const std::shared_ptr<Buffer>& buffer : buffers_) {
    // Its thread may hold it for as long as it lives.
    MutexLock lock(&buffer->mutex);
    std::deque<TraceEvent>().swap(buffer->events);
  }
  buffers_.clear();
  events_ = 0;
  dropped_ = 0;
  trace_ = 0;
}

bool TraceRecorder::recording(uint64_t trace) {
  MutexLock lock(&mutex_);
  EndIfOver();
  return TraceIsOn() && trace_ == trace;
}

absl::StatusOr<TraceRecording> TraceRecorder::Read(uint64_t trace) {
  MutexLock lock(&mutex_);
  EndIfOver();
  if (trace == 0 || trace != trace_) {
    return absl::NotFoundError(
        "this process has recorded nothing of the trace");
  }
  if (TraceIsOn()) {
    return absl::FailedPreconditionError("the trace is still being recorded");
  }
  TraceRecording recording;
  recording.begin_ns = begin_ns_;
  recording.end_ns = end_ns_;
  recording.dropped = dropped_;
  for (const std::shared_ptr<Buffer>& buffer : buffers_) {
    MutexLock buffer_lock(&buffer->mutex);
    recording.lanes.push_back(
        {buffer->name, {buffer->events.begin(), buffer->events.end()}});
  }
  return recording;
}

void TraceRecorder::Forget(uint64_t trace) {
  MutexLock lock(&mutex_);
  if (trace != 0 && trace == trace_) {
    trace_internal::on = false;
    Drop();
  }
}

TraceRecorder::Buffer* TraceRecorder::OwnBuffer() {
  thread_local std::shared_ptr<Buffer> own;
  if (own == nullptr || own->recording != number_) {
    auto made = std::make_shared<Buffer>();
    MutexLock lock(&mutex_);
    if (!TraceIsOn() || buffers_.size() >= kTraceLanesMax) {
      return nullptr;
    }
    made->recording = number_;
    made->name = LaneName().empty() ? absl::StrCat("thread ", buffers_.size())
                                    : LaneName();
    buffers_.push_back(made);
    own = std::move(made);
  }
  return own.get();
}

void TraceRecorder::Record(const TraceEvent& event) {
  if (event.end_ns >= end_ns_) {  // I2
    MutexLock lock(&mutex_);
    EndIfOver();
    return;
  }
  if (event.begin_ns < begin_ns_) {  // I4
    return;
  }
  Buffer* const buffer = OwnBuffer();
  // I3. Both bounds hold whichever threads come at the same time.
  if (buffer == nullptr || events_.fetch_add(1) >= events_max_) {
    ++dropped_;
    return;
  }
  MutexLock lock(&buffer->mutex);
  // Looked at under the lock, so that Drop cannot have come in between.
  if (buffer->recording != number_ || !TraceIsOn() ||
      buffer->events.size() >= kTraceEventsPerLaneMax) {
    ++dropped_;
    return;
  }
  buffer->events.push_back(event);
}

}  // namespace weir
