// The part of JobState that waits for a disk: a checkpoint that failed and is
// needed, and one that is slow.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/plant.h"
#include "server/chief/job_state.h"

namespace weir {
namespace {

// The wait after the first failure. It doubles after each, up to kRetryMaxNs.
constexpr int64_t kRetryNs = 1'000'000'000;
constexpr int64_t kRetryMaxNs = 10'000'000'000;
// A line about a slow checkpoint comes this often, in seconds.
constexpr double kSaySlow = 10.0;

}  // namespace

// What was trained is in the memory of healthy shards and nowhere else. A full
// disk or a share that is away can be mended, and the job waits for that.
void JobState::RetryNeeded(const absl::Status& status) {
  // No later try would be let in either.
  const bool refused = status.code() == absl::StatusCode::kPermissionDenied ||
                       status.code() == absl::StatusCode::kUnauthenticated;
  if (refused || (Planted("checkpoint.last_gives_up") && tries_failed_ >= 3)) {
    Fail(status);
    return;
  }
  // The shift is bounded, since the number of failures is not.
  const int64_t wait_ns =
      std::min(kRetryNs << std::min(tries_failed_ - 1, 10), kRetryMaxNs);
  retry_ns_ = now_ns_ + wait_ns;
  if (stop_requested_) {
    stop_ns_ = now_ns_;  // the next try has as long to freeze as the first
  }
  Say(absl::StrCat(status.message(),
                   "; the result is safe in the memory of the ps: trying again "
                   "in ",
                   wait_ns / 1'000'000'000, " s, until it is written or a ",
                   stop_requested_ ? "second " : "second of two ",
                   "signal ends the chief without it"),
      true);
}

void JobState::SaySlowCheckpoint() {
  const std::string waits_for = cycle_.WaitsFor();
  if (waits_for.empty() || SecondsSince(cycle_.begun_ns()) < kSaySlow ||
      !TimeToSay("slow checkpoint", kSaySlow)) {
    return;
  }
  Say(absl::StrCat("the checkpoint of step ", cycle_.step(), " has taken ",
                   static_cast<int>(SecondsSince(cycle_.begun_ns())),
                   " s and waits for ", waits_for,
                   ": does the disk of the work directory answer?"),
      true);
}

}  // namespace weir
