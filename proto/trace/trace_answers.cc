#include "proto/trace/trace_answers.h"

#include <chrono>
#include <utility>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/status.h"
#include "proto/trace/trace_parts.h"

namespace weir {

absl::StatusOr<TraceReply> TraceAnswers::Answer(const TraceRequest& request) {
  TraceRecorder* const recorder = TraceRecorder::Process();
  const std::chrono::milliseconds duration(request.start_ms());
  MutexLock lock(&mutex_);
  if (request.trace() == 0) {
    // It asks for the time alone.
  } else if (request.forget()) {
    recorder->Forget(request.trace());
    if (trace_ == request.trace()) {
      parts_ = {};
      trace_ = 0;
    }
  } else if (duration > kTraceMax) {
    return Invalid("a trace of ", request.start_ms(),
                   " ms; at most 60,000 are taken");
  } else if (duration.count() > 0) {
    WEIR_RETURN_IF_ERROR(recorder->Start(request.trace(), duration));
    parts_ = {};
    trace_ = 0;
  } else if (trace_ != request.trace() &&
             !recorder->recording(request.trace())) {
    WEIR_ASSIGN_OR_RETURN(const TraceRecording recording,
                          recorder->Read(request.trace()));
    parts_ = MakeTraceParts(recording);
    trace_ = request.trace();
  }
  TraceReply reply;
  if (request.trace() != 0 && trace_ == request.trace()) {
    reply.set_ready(true);
    reply.set_part_count(static_cast<uint32_t>(parts_.size()));
  }
  if (request.has_part()) {
    if (request.part() >= reply.part_count()) {
      return Invalid("part ", request.part(), " of ", reply.part_count());
    }
    *reply.mutable_part() = parts_[request.part()];
  }
  // Last, so that the time is as near to the answer as to the question.
  reply.set_now_ns(Clock::Real()->NowNs());
  return reply;
}

}  // namespace weir
