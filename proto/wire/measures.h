// What a task measures of itself, as it travels.
//
// Place: between common/metrics and the messages that carry its figures:
// PsStatus of ps.proto, WorkerLoad of chief.proto.
//
// Threads: safe.
#ifndef PROTO_WIRE_MEASURES_H_
#define PROTO_WIRE_MEASURES_H_

#include "common/metrics/histogram.h"
#include "common/metrics/host_usage.h"
#include "proto/ps.pb.h"

namespace weir {

ProcessUsage ToProto(const HostUsage& usage);

// REQUIRES: of a TimeHistogram.
Durations ToProto(const HistogramSnapshot& times);
// Buckets that a TimeHistogram does not have are left out.
HistogramSnapshot FromProto(const Durations& times);

}  // namespace weir

#endif  // PROTO_WIRE_MEASURES_H_
