#include "worker/evaluate/evaluator.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/checkpoint/evaluated.h"

namespace weir {

Evaluator::Evaluator(Files* files, Clock* clock, std::string workdir,
                     Evaluate evaluate)
    : files_(files),
      clock_(clock),
      workdir_(std::move(workdir)),
      evaluate_(std::move(evaluate)),
      // An evaluator that is started again goes on where its lines end.
      seen_(EvaluatedCheckpoints(files_, workdir_)),
      ended_before_(
          files_->ReadAll(JoinPath(workdir_, kEndedName)).value_or("")) {}

absl::StatusOr<bool> Evaluator::Poll() {
  // Before the list: the chief writes DONE after the checkpoint that it names,
  // so the list below has that checkpoint.
  const auto done = files_->ReadAll(JoinPath(workdir_, kDoneName));
  WEIR_ASSIGN_OR_RETURN(
      const std::vector<CheckpointInfo> checkpoints,
      ListCheckpoints(files_, JoinPath(workdir_, "checkpoints")));
  if (!checkpoints.empty() && seen_.count(checkpoints.back().name) == 0) {
    const CheckpointInfo& newest = checkpoints.back();
    const int64_t begin_ns = clock_->NowNs();
    const absl::StatusOr<EvaluationResult> result = evaluate_(newest.path);
    if (result.ok()) {
      WEIR_RETURN_IF_ERROR(AppendLine(
          *result, static_cast<double>(clock_->NowNs() - begin_ns) / 1e9));
      seen_.insert(newest.name);
    } else if (ReadManifest(files_, newest.path).ok()) {
      // Still there, so it is damaged. Marked as seen, or every poll would
      // report it again and DONE would never be reached.
      seen_.insert(newest.name);
      return result.status();
    }  // else the chief deleted it while it was read, and there is a newer one
  }
  return done.ok() &&
         seen_.count(std::string(absl::StripAsciiWhitespace(*done))) > 0;
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
  // One Append for the whole line: a crash between two would leave a part. A
  // full disk may have left one all the same, which stays a line of its own.
  const std::string path = JoinPath(workdir_, kEvaluationsName);
  const std::string before = files_->ReadAll(path).value_or("");
  const bool torn = !before.empty() && !absl::EndsWith(before, "\n");
  const std::string text =
      absl::StrCat(torn ? "\n" : "", ResultLine(result, seconds), "\n");
  WEIR_ASSIGN_OR_RETURN(const auto writer, files_->OpenAppend(path));
  WEIR_RETURN_IF_ERROR(writer->Append(text.data(), text.size()));
  return writer->Close();
}

}  // namespace weir
