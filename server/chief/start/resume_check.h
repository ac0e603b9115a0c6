// Whether a job may continue from a checkpoint.
//
// Place: start_sequence.cc asks before it restores the shards. A spec job is
// compared with the job file that the manifest carries, an SDK job with the
// declaration that the manifest carries.
//
// Errors: INVALID_ARGUMENT  another job, or a checkpoint of the other kind of
//                           job; names the checkpoint and the first difference.
//         ALREADY_EXISTS    SDK job: another model; names the same.
#ifndef SERVER_CHIEF_START_RESUME_CHECK_H_
#define SERVER_CHIEF_START_RESUME_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "proto/ps.pb.h"
#include "server/chief/state/actions.h"

namespace weir {

// Returns the first field in which a job that continues from `before` must not
// differ from it, "model.layer[1].dense.units: 64 -> 32", or "". The length of
// the job, schedules, checkpoints, evaluation and limits may change.
std::string FirstResumeDifference(const JobSpec& before, const JobSpec& now);

// Checks that a job with `spec` may continue from `found`.
absl::Status CheckResume(const JobSpec& spec, const FoundCheckpoint& found);

// Does the same for an SDK job that its workers declare as `declaration`, and
// sets base_version and pushes_before of it. Changes nothing on failure.
absl::Status ResumeSdkJob(const FoundCheckpoint& found, int worker_count,
                          Declaration* declaration);

}  // namespace weir

#endif  // SERVER_CHIEF_START_RESUME_CHECK_H_
