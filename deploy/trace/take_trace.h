// Takes a trace of a running job: tells its tasks to record, waits, and
// collects what they recorded.
//
// Place: `weir trace` makes the sources and writes the result
// (proto/trace/chrome_trace.h). Tests give sources of their own.
//
// Invariants
//   I1. A source that does not answer costs the trace that source alone: it is
//       noted, and the others are collected.
//   I2. All times are of the caller's clock; how far a task's clock is ahead
//       follows from the quickest of some exchanges with it, before and after.
//   I3. Nothing waits for longer than the trace, kTraceLateWait and some calls.
// Threads: one caller.
// Errors: UNAVAILABLE         no source answers.
//         RESOURCE_EXHAUSTED  another trace is being taken.
//         others              why the first source did not begin.
#ifndef DEPLOY_TRACE_TAKE_TRACE_H_
#define DEPLOY_TRACE_TAKE_TRACE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "proto/trace.pb.h"
#include "proto/trace/chrome_trace.h"

namespace weir {

// A process that can be asked: a ps, or the chief, which answers for the
// workers as well.
struct TraceSource {
  std::string name;  // "ps 0", "chief"
  std::function<absl::StatusOr<TraceReply>(const TraceRequest&)> ask;
};

struct TakeTraceOptions {
  std::chrono::milliseconds duration{10000};
  uint64_t trace = 0;  // a random number
  // Takes lines for people: what was left out, and why.
  std::function<void(const std::string&)> note;
  std::function<void(std::chrono::milliseconds)> sleep;
  Clock* clock = Clock::Real();
};

absl::StatusOr<ChromeTrace> TakeTrace(std::vector<TraceSource> sources,
                                      const TakeTraceOptions& options);

}  // namespace weir

#endif  // DEPLOY_TRACE_TAKE_TRACE_H_
