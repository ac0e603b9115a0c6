// Whether what a worker reports can be of this job.
//
// Place: JobState asks before a heartbeat changes anything. A peer that is
// mistaken or hostile gets an error, and costs the chief nothing beyond its
// message.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT  names the number that is out of its range.
#ifndef SERVER_CHIEF_STATE_REPORTS_H_
#define SERVER_CHIEF_STATE_REPORTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "proto/chief.pb.h"

namespace weir {

// `contribution_count` is 0 where nobody counts them. `variable_count` is how
// many variables the shards hold.
absl::Status CheckReports(const Progress& progress, uint64_t contribution_count,
                          int variable_count);

}  // namespace weir

#endif  // SERVER_CHIEF_STATE_REPORTS_H_
