// Makes what a program reports fit for the heartbeat.
//
// Place: session.h, for Client::Report.
//
// Threads: compatible.
// Errors: INVALID_ARGUMENT  too many metrics, one twice, or a name that no
//                           metric may have.
#ifndef CLIENT_CC_SDK_METRICS_H_
#define CLIENT_CC_SDK_METRICS_H_

#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "client/cc/weir_report.h"
#include "proto/chief.pb.h"

namespace weir::sdk {

// `names` holds every name that this process has reported; new ones are added
// to it. On failure it is unchanged.
absl::StatusOr<MetricSums> ToMetricSums(const Metrics& metrics,
                                        std::set<std::string>* names);

}  // namespace weir::sdk

#endif  // CLIENT_CC_SDK_METRICS_H_
