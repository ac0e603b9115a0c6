#include "proto/wire/measures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace weir {

ProcessUsage ToProto(const HostUsage& usage) {
  ProcessUsage proto;
  proto.set_cpu_ns(static_cast<uint64_t>(usage.cpu_ns));
  proto.set_major_faults(static_cast<uint64_t>(usage.major_faults));
  proto.set_late_ns(static_cast<uint64_t>(usage.late_ns));
  proto.set_late_count(static_cast<uint64_t>(usage.late_count));
  proto.set_memory_stall_ns(static_cast<uint64_t>(usage.memory_stall_ns));
  proto.set_processors(usage.processors);
  proto.set_resident_bytes(static_cast<uint64_t>(usage.resident_bytes));
  proto.set_memory_bytes_max(static_cast<uint64_t>(usage.memory_bytes_max));
  return proto;
}

Durations ToProto(const HistogramSnapshot& times) {
  Durations proto;
  proto.mutable_bucket()->Assign(times.counts.begin(), times.counts.end());
  proto.set_sum_ns(static_cast<uint64_t>(std::llround(times.sum * 1e9)));
  return proto;
}

HistogramSnapshot FromProto(const Durations& times) {
  HistogramSnapshot snapshot = TimeHistogram().Snapshot();
  const size_t count = std::min(snapshot.counts.size(),
                                static_cast<size_t>(times.bucket_size()));
  for (size_t i = 0; i < count; ++i) {
    snapshot.counts[i] = times.bucket(static_cast<int>(i));
    snapshot.count += snapshot.counts[i];
  }
  snapshot.sum = static_cast<double>(times.sum_ns()) * 1e-9;
  return snapshot;
}

}  // namespace weir
