// Answers who takes a trace of this process.
//
// Place: behind ParameterServer.Trace, and below the chief's collector
// (server/chief/trace_collector.h), which adds what its workers sent.
//
// Threads: safe. Cost: the first request after the end turns up to 262,144
//   events into messages, some 0.2 s; do not call it where others wait.
// Errors: those of TraceRequest in proto/trace.proto.
#ifndef PROTO_TRACE_TRACE_ANSWERS_H_
#define PROTO_TRACE_TRACE_ANSWERS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/trace/trace.h"
#include "proto/trace.pb.h"

namespace weir {

class TraceAnswers {
 public:
  absl::StatusOr<TraceReply> Answer(const TraceRequest& request);

 private:
  Mutex mutex_;
  uint64_t trace_ ABSL_GUARDED_BY(mutex_) = 0;  // of parts_
  std::vector<TracePart> parts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // PROTO_TRACE_TRACE_ANSWERS_H_
