// Takes a trace of the chief and of its workers.
//
// Place: behind Chief.Trace and Chief.PutTrace. The service tells the workers
// (Command.trace); this keeps what they send until it is fetched. See
// "Timelines" in docs/design_notes.md.
//
// Invariants
//   I1. One trace at a time; a new one drops what is left of the one before.
//   I2. Workers' parts take kTraceBytesMax together at most, and each worker's
//       share is the same: a place is a rank's, whatever it says of itself.
//   I3. Nobody waits here. A trace is ready when every worker that was told has
//       sent all, or kTraceLateWait after its end.
// Threads: safe.
// Owns/borrows: borrows the clock.
// Errors: those of TraceRequest and PutTraceRequest in proto/trace.proto.
#ifndef SERVER_CHIEF_TRACE_COLLECTOR_H_
#define SERVER_CHIEF_TRACE_COLLECTOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "proto/trace.pb.h"
#include "proto/trace/trace_answers.h"

namespace weir {

class TraceCollector {
 public:
  explicit TraceCollector(Clock* clock = Clock::Real()) : clock_(clock) {}

  absl::StatusOr<TraceReply> Answer(const TraceRequest& request);
  // What to tell each of `workers` workers after Answer has begun `request`.
  // Only these are waited for.
  TraceOrder OrderFor(const TraceRequest& request, size_t workers);
  // Takes a piece from worker `rank`.
  absl::StatusOr<PutTraceReply> Put(const PutTraceRequest& request,
                                    uint32_t rank);

 private:
  // What one worker has sent.
  struct Sent {
    uint64_t process = 0;
    // By number, serialized: a message of events without a field takes sixty
    // times as much memory.
    std::map<uint32_t, std::string> parts;
    size_t bytes = 0;
    bool here = false;   // it is in this very process
    bool heard = false;  // it has sent all
  };

  bool WorkersAreDone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t Share() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t HeardCount() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Keeps the part of a request, unless it was kept before (I2).
  absl::Status AddPart(const PutTraceRequest& request, uint32_t rank)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The `index`th part over all workers; null beyond the last one.
  const std::string* WorkersPart(uint32_t index) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Clock* const clock_;
  TraceAnswers own_;  // of this process

  Mutex mutex_;
  uint64_t trace_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t end_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t told_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint32_t, Sent> sent_ ABSL_GUARDED_BY(mutex_);  // by rank
};

}  // namespace weir

#endif  // SERVER_CHIEF_TRACE_COLLECTOR_H_
