// Follows a run's committed checkpoints and appends a line for each to
// eval.jsonl.
//
// Place: it stands outside the cluster and talks to no process. It reads
//   DIR/checkpoints and ends when DIR/DONE names a checkpoint that it has
//   evaluated (the chief waits for that checkpoint's line), or when DIR/ENDED
//   says that the run ended otherwise.
//
// A line: {"checkpoint": "ckpt-500", "step": 500, "examples": 2000,
//          "seconds": 0.4, "loss": ..., "accuracy": ...}
//
// Threads: compatible.
#ifndef WORKER_EVALUATE_EVALUATOR_H_
#define WORKER_EVALUATE_EVALUATOR_H_

#include <functional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/io/files.h"
#include "worker/evaluate/evaluation.h"

namespace weir {

class Evaluator {
 public:
  using Evaluate =
      std::function<absl::StatusOr<EvaluationResult>(const std::string& dir)>;

  // Borrows files and clock. Lines already in eval.jsonl are not repeated.
  Evaluator(Files* files, Clock* clock, std::string workdir, Evaluate evaluate);

  // Evaluates the newest checkpoint if it has no line yet. Older ones without a
  // line are skipped, and so is one that is deleted while it is read. Returns
  // true when nothing is left to do: DONE is there and its checkpoint has a
  // line.
  // Errors: those of the evaluation, DATA_LOSS for instance. That checkpoint is
  //   not evaluated again.
  absl::StatusOr<bool> Poll();

  // Returns why the run ended before it was done; OK while it goes on. An ENDED
  // that was there at the start belongs to an earlier run in this directory,
  // until the chief removes it.
  absl::Status Ended();

 private:
  absl::Status AppendLine(const EvaluationResult& result, double seconds);

  Files* const files_;
  Clock* const clock_;
  const std::string workdir_;
  const Evaluate evaluate_;
  std::set<std::string> seen_;  // checkpoints with a line, and damaged ones
  std::string ended_before_;    // the text of ENDED at the start
};

}  // namespace weir

#endif  // WORKER_EVALUATE_EVALUATOR_H_
