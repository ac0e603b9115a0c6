// Timelines: what this process did, and when, while somebody asked for it.
//
// Place: the places that matter hold a TraceSpan. proto/trace/ carries what was
// recorded to `weir trace`, which writes one file of all tasks' recordings.
//
//   const TraceSpan span("apply", [&](TraceDetails* details) {
//     details->Add("block", index);
//   });
//
// Terms
//   lane       a thread, by the name that it gave itself.
//   slice      what a lane did from one time to another. Slices of a lane nest.
//   wait       the same for what is no thread's, like a parked pull. Waits may
//              overlap.
//   flow       ties slices of several tasks together by one number, which each
//              of them computes from what it knows; none is sent.
//   recording  all slices and waits from Start until its end. There is one at a
//              time in a process.
//
// Invariants
//   I1. While nothing is recorded a place costs one relaxed load and a branch;
//       its details are not computed.
//   I2. A recording ends by itself: whoever records or asks after its end ends
//       it, so it needs no thread, and nobody has to come back for that.
//   I3. A recording holds at most its events_max events, kTraceEventsPerLaneMax
//       of one lane, and kTraceLanesMax lanes. What is beyond them is counted
//       and dropped.
//   I4. Only what began after Start is recorded.
// Threads: safe.
// Cost: while recording, two clock reads and an uncontended lock for each
//   slice, and about 100 bytes that are kept.
#ifndef COMMON_TRACE_TRACE_H_
#define COMMON_TRACE_TRACE_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace weir {

// Events of a recording: ten seconds of 5,000 blocks a second, in 25 MB.
inline constexpr size_t kTraceEventsMax = size_t{1} << 18;
// Of one lane, so that a busy thread leaves room for the others.
inline constexpr size_t kTraceEventsPerLaneMax = size_t{1} << 17;
// A process of Weir has some dozens of threads.
inline constexpr size_t kTraceLanesMax = 512;
inline constexpr size_t kTraceArgsMax = 3;

// How a slice belongs to its flow.
enum class TraceFlow : uint8_t { kNone, kBegins, kPasses, kEnds };

// Names are literals: they are kept as pointers.
struct TraceArg {
  const char* name;  // null: there is none
  int64_t value;
};

struct TraceEvent {
  const char* name;
  int64_t begin_ns;  // of Clock::Real
  int64_t end_ns;
  uint64_t flow_id;
  std::array<TraceArg, kTraceArgsMax> args;
  TraceFlow flow;
  bool is_wait;
};

// What a span says of itself, beyond its name and times.
class TraceDetails {
 public:
  explicit TraceDetails(TraceEvent* event) : event_(event) {}

  // Drops what is beyond kTraceArgsMax.
  template <typename Number>
  void Add(const char* name, Number value) {
    for (TraceArg& arg : event_->args) {
      if (arg.name == nullptr) {
        arg = {name, static_cast<int64_t>(value)};
        return;
      }
    }
  }
  void Flow(TraceFlow flow, uint64_t id) {
    event_->flow = flow;
    event_->flow_id = id;
  }

 private:
  TraceEvent* const event_;
};

// The flow of one block of a contribution: from the worker that pushes it
// through the ps that applies it to the values that come back. `block` counts
// from 0 on its shard; kTraceRows stands for the rows of the contribution.
inline constexpr uint32_t kTraceRows = ~uint32_t{0};
uint64_t TraceFlowOf(uint64_t history, int shard, uint32_t slot,
                     uint64_t sequence, uint32_t block);

struct TraceLane {
  std::string name;
  std::vector<TraceEvent> events;  // in the order in which they ended
};

struct TraceRecording {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t dropped = 0;  // events (I3)
  std::vector<TraceLane> lanes;
};

namespace trace_internal {
extern std::atomic<bool> on;
void Record(const TraceEvent& event);
void RecordSlice(const char* name, int64_t begin_ns, int64_t end_ns);
// Fills in the rest of `event`, whose slice ends now.
void RecordSpan(const char* name, int64_t begin_ns, TraceEvent* event);
}  // namespace trace_internal

class TraceRecorder {
 public:
  // The process's own; never deleted.
  static TraceRecorder* Process();

  // Begins a recording, and drops what an earlier one has kept. `trace` is the
  // number of the trace that it belongs to; to begin the same one again changes
  // nothing.
  // Errors: RESOURCE_EXHAUSTED  another one is being recorded.
  absl::Status Start(uint64_t trace, std::chrono::milliseconds duration,
                     size_t events_max = kTraceEventsMax);

  // Whether `trace` is still being recorded.
  bool recording(uint64_t trace);
  // Returns what was recorded for `trace`, and keeps it.
  // Errors: NOT_FOUND            this process has recorded none of it.
  //         FAILED_PRECONDITION  it is still being recorded.
  absl::StatusOr<TraceRecording> Read(uint64_t trace);
  // Frees what was recorded for `trace`, and ends it if it is going on.
  void Forget(uint64_t trace);

  // Ends the recording as its time would.
  void EndForTest();

  // A random number of this process, by which one that plays two roles shows
  // that it has one recording.
  uint64_t process() const { return process_; }

 private:
  friend void trace_internal::Record(const TraceEvent& event);

  // The events of one thread in one recording.
  struct Buffer {
    uint64_t recording = 0;  // constant, as is the next
    std::string name;
    Mutex mutex;
    // No vector: a thread must not stand still while megabytes move.
    std::deque<TraceEvent> events ABSL_GUARDED_BY(mutex);
  };

  TraceRecorder();
  void Record(const TraceEvent& event);
  // The buffer of this thread; null when there are too many.
  Buffer* OwnBuffer();
  // Ends the recording if its time is over (I2).
  void EndIfOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t process_;
  // What a place reads without the lock. They change in Start alone, while
  // nothing is recorded.
  std::atomic<uint64_t> number_{0};  // of the recording, from 1
  std::atomic<int64_t> begin_ns_{0};
  std::atomic<int64_t> end_ns_{0};
  std::atomic<size_t> events_max_{0};
  std::atomic<size_t> events_{0};  // that asked for room
  std::atomic<uint64_t> dropped_{0};

  Mutex mutex_;
  uint64_t trace_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<Buffer>> buffers_ ABSL_GUARDED_BY(mutex_);
};

inline bool TraceIsOn() {
  return trace_internal::on.load(std::memory_order_relaxed);
}

// Names the lane of this thread, from its next recording on.
void NameTraceLane(std::string name);

// Records a slice whose times are known already.
inline void TraceSlice(const char* name, int64_t begin_ns, int64_t end_ns) {
  if (TraceIsOn()) [[unlikely]] {
    trace_internal::RecordSlice(name, begin_ns, end_ns);
  }
}

struct NoTraceDetails {
  void operator()(TraceDetails* /*details*/) const {}
};

// A slice from here to the end of the scope. `describe` is called at the end,
// while something is recorded, and may refer to what it describes.
template <typename Describe = NoTraceDetails>
class TraceSpan {
 public:
  explicit TraceSpan(const char* name, Describe describe = Describe())
      : name_(name), describe_(std::move(describe)) {
    if (TraceIsOn()) [[unlikely]] {  // I1
      begin_ns_ = Clock::Real()->NowNs();
    }
  }
  ~TraceSpan() {
    if (begin_ns_ != 0) [[unlikely]] {
      // Here and not in a function, which would want this object in memory, and
      // with it all that `describe_` refers to, also while nothing is recorded.
      TraceEvent event = {};
      TraceDetails details(&event);
      describe_(&details);
      trace_internal::RecordSpan(name_, begin_ns_, &event);
    }
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  const char* const name_;
  const Describe describe_;
  int64_t begin_ns_ = 0;  // 0: nothing was recorded when it began
};

template <typename Describe>
TraceSpan(const char*, Describe) -> TraceSpan<Describe>;
TraceSpan(const char*)->TraceSpan<NoTraceDetails>;

// Returns `done`; while something is recorded, one that also records the wait
// from now until it is called. `number` says which one it is, such as a block.
template <typename Answer>
std::function<void(Answer)> TracedWait(const char* name, int64_t number,
                                       std::function<void(Answer)> done) {
  if (!TraceIsOn()) [[likely]] {
    return done;
  }
  return [name, number, begin_ns = Clock::Real()->NowNs(),
          done = std::move(done)](Answer answer) {
    TraceEvent event = {};
    event.name = name;
    event.begin_ns = begin_ns;
    event.end_ns = Clock::Real()->NowNs();
    event.args[0] = {"number", number};
    event.is_wait = true;
    trace_internal::Record(event);
    done(std::move(answer));
  };
}

}  // namespace weir

#endif  // COMMON_TRACE_TRACE_H_
