// Metrics that programs of the SDK report, as sums on their way to a curve.
//
// Place: the SDK makes MetricSums of a report, the heartbeat adds up what was
// reported since its last message, and the chief what its workers sent.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT  a name or number that no report may have.
#ifndef CLIENT_CC_JOB_METRIC_SUMS_H_
#define CLIENT_CC_JOB_METRIC_SUMS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/chief.pb.h"

namespace weir {

// A name is 1 to kMetricNameBytesMax letters, digits, '_', '.', '/' or '-', so
// that it is a key of JSON and a tag of TensorBoard as it is. It is no key that
// the chief writes into every line of train.jsonl by itself.
absl::Status CheckMetricName(absl::string_view name);

// What the chief takes from a peer: at most kMetricNamesMax metrics, each with
// a name as above and a positive, finite weight.
absl::Status CheckMetricSums(const MetricSums& sums);

// Adds `more` to `sums`. Names beyond kMetricNamesMax are left out.
void MergeMetrics(const MetricSums& more, MetricSums* sums);

}  // namespace weir

#endif  // CLIENT_CC_JOB_METRIC_SUMS_H_
