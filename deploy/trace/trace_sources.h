// The tasks of a job that can be asked for their timelines, by gRPC.
#ifndef DEPLOY_TRACE_TRACE_SOURCES_H_
#define DEPLOY_TRACE_TRACE_SOURCES_H_

#include <vector>

#include "common/job/cluster_spec.h"
#include "deploy/trace/take_trace.h"
#include "proto/security/security.h"

namespace weir {

// The chief, or worker 0 in its place, and then every ps of `cluster`. Nothing
// is connected yet.
std::vector<TraceSource> MakeTraceSources(const ClusterSpec& cluster,
                                          const Security& security);

}  // namespace weir

#endif  // DEPLOY_TRACE_TRACE_SOURCES_H_
