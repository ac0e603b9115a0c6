// A recording of this process as messages.
//
// Threads: safe.
#ifndef PROTO_TRACE_TRACE_PARTS_H_
#define PROTO_TRACE_TRACE_PARTS_H_

#include <cstddef>
#include <vector>

#include "common/base/limits.h"
#include "common/trace/trace.h"
#include "proto/trace.pb.h"

namespace weir {

// Cuts `recording` into parts of at most `events_per_part` events, with at
// least one part. The first of them says how many events were dropped.
std::vector<TracePart> MakeTraceParts(
    const TraceRecording& recording,
    size_t events_per_part = kTraceEventsPerPart);

}  // namespace weir

#endif  // PROTO_TRACE_TRACE_PARTS_H_
