#include "worker/evaluate/evaluator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/exit_code.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "common/objects/any_store.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/checkpoint/evaluated.h"
#include "proto/job/job_spec_text.h"

namespace weir {
namespace {

constexpr std::chrono::milliseconds kDirectoryPause{200};
constexpr std::chrono::milliseconds kStorePause{1000};
// How often Follow looks whether it is to stop.
constexpr std::chrono::milliseconds kTick{200};
constexpr std::chrono::seconds kListEveryMin{1};
constexpr std::chrono::seconds kListEveryMax{30};

}  // namespace

Evaluator::Evaluator(ObjectStore* files, Clock* clock, std::string workdir,
                     Train train, Evaluate evaluate)
    : files_(files),
      clock_(clock),
      workdir_(std::move(workdir)),
      train_(std::move(train)),
      lines_(files, JoinPath(workdir_, kEvaluationsName), clock),
      evaluate_(std::move(evaluate)),
      ended_before_(
          files_->ReadAll(JoinPath(workdir_, kEndedName)).value_or("")),
      list_every_(0) {
  // An evaluator that is started again goes on where its lines end.
  for (const std::string& name : EvaluatedCheckpoints(files_, workdir_)) {
    seen_[name] = absl::OkStatus();
  }
}

std::chrono::milliseconds Evaluator::pause() const {
  return IsObjectUrl(workdir_) ? kStorePause : kDirectoryPause;
}

absl::Status Evaluator::Follow(const std::function<bool()>& stopped) {
  while (!stopped()) {
    // First, so that a run which failed is not evaluated any further.
    WEIR_RETURN_IF_ERROR(Ended());
    const absl::StatusOr<bool> done = Poll();
    // A damaged checkpoint is no reason to end: the next one may be whole. A
    // place that is full or does not answer may do so the next time.
    if (IsTransientExit(ExitCodeFor(done.status()))) {
      LOG_WARN("{}", std::string(done.status().message()));
    } else if (!done.ok()) {
      LOG_ERROR("{}", std::string(done.status().message()));
    } else if (*done) {
      return last_;
    }
    const int64_t next_ns =
        clock_->NowNs() + std::chrono::nanoseconds(pause()).count();
    do {
      clock_->SleepFor(kTick);
    } while (!stopped() && clock_->NowNs() < next_ns);
  }
  return absl::CancelledError("between two checkpoints");
}

absl::StatusOr<bool> Evaluator::Poll() {
  // Before the list: the chief writes DONE after the checkpoint that it names,
  // so the list below has that checkpoint.
  const auto done = files_->ReadAll(JoinPath(workdir_, kDoneName));
  const std::string last(absl::StripAsciiWhitespace(done.value_or("")));
  if ((done.ok() && seen_.count(last) == 0) ||
      clock_->NowNs() - listed_ns_ >= list_every_.count()) {
    const absl::StatusOr<bool> found = EvaluateNewest();
    listed_ns_ = clock_->NowNs();
    if (IsObjectUrl(workdir_)) {
      const bool any = found.ok() ? *found : absl::IsDataLoss(found.status());
      list_every_ = any ? std::chrono::nanoseconds(kListEveryMin)
                        : std::clamp<std::chrono::nanoseconds>(
                              2 * list_every_, kListEveryMin, kListEveryMax);
    }
    WEIR_RETURN_IF_ERROR(found.status());
  }
  if (!done.ok() || seen_.count(last) == 0) {
    return false;
  }
  WEIR_ASSIGN_OR_RETURN(const bool is_end, IsEnd(last));
  if (!is_end) {
    return false;
  }
  // As in FindDone: nobody starts this task again.
  WEIR_RETURN_IF_ERROR(files_->SyncDirectory(workdir_));
  last_ = seen_.at(last);
  return true;
}

absl::StatusOr<bool> Evaluator::IsEnd(const std::string& checkpoint) {
  const absl::StatusOr<Manifest> manifest = ReadManifest(
      files_, JoinPath(JoinPath(workdir_, "checkpoints"), checkpoint));
  if (absl::IsUnavailable(manifest.status())) {
    return manifest.status();
  }
  const absl::StatusOr<JobSpec> before =
      manifest.ok() ? ParseJobSpec(manifest->job_spec_text(), "its job")
                    : manifest.status();
  if (!before.ok()) {
    return true;  // nothing says otherwise, and it was evaluated
  }
  // Not the whole text: a job that is resumed when it is done may have another
  // evaluation section, say, and ends at the checkpoint that is there.
  return before->train().steps() == train_.steps() &&
         before->train().epochs() == train_.epochs();
}

absl::StatusOr<bool> Evaluator::EvaluateNewest() {
  WEIR_ASSIGN_OR_RETURN(
      const std::vector<CheckpointInfo> checkpoints,
      ListCheckpoints(files_, JoinPath(workdir_, "checkpoints")));
  if (checkpoints.empty() || seen_.count(checkpoints.back().name) > 0) {
    return false;
  }
  const CheckpointInfo& newest = checkpoints.back();
  const int64_t begin_ns = clock_->NowNs();
  const absl::StatusOr<EvaluationResult> result = evaluate_(newest.path);
  if (result.ok()) {
    WEIR_RETURN_IF_ERROR(AppendLine(
        *result, static_cast<double>(clock_->NowNs() - begin_ns) / 1e9));
    seen_[newest.name] = absl::OkStatus();
    return true;
  }
  if (absl::IsUnavailable(result.status())) {
    return result.status();
  }
  if (ReadManifest(files_, newest.path).ok()) {
    // Still there, so it is damaged, say. Marked as seen, or every poll would
    // report it again and DONE would never be reached.
    seen_[newest.name] = result.status();
    return result.status();
  }
  return true;  // the chief deleted it while it was read: there is a newer one
}

absl::Status Evaluator::Ended() {
  const auto text = files_->ReadAll(JoinPath(workdir_, kEndedName));
  if (!text.ok()) {
    ended_before_.clear();
    return absl::OkStatus();
  }
  if (*text == ended_before_) {
    return absl::OkStatus();
  }
  return ParseEnding(*text);
}

absl::Status Evaluator::AppendLine(const EvaluationResult& result,
                                   double seconds) {
  return lines_.AppendNow(absl::StrCat(ResultLine(result, seconds), "\n"));
}

}  // namespace weir
