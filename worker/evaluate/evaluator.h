// Follows a run's committed checkpoints and appends a line for each to
// eval.jsonl.
//
// Place: outside the cluster: it talks to nobody, it reads DIR/checkpoints and
// ends when DIR/DONE names a checkpoint that it has evaluated, for whose line
// the chief waits, or when DIR/ENDED says that the run ended otherwise.
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

  // Evaluates the newest checkpoint that has no line yet; checkpoints between
  // may be skipped, and one that is deleted under it is. Returns true when DONE
  // is there and its checkpoint has a line: nothing is left to do.
  // Errors: DATA_LOSS and the like: that checkpoint is damaged; it is not
  //   looked at again.
  absl::StatusOr<bool> Poll();

  // Why the run ended before it was done; OK while it goes on. An ENDED that
  // was there at the start is of an earlier life until the chief removes it.
  absl::Status Ended();

 private:
  absl::Status AppendLine(const EvaluationResult& result, double seconds);

  Files* const files_;
  Clock* const clock_;
  const std::string workdir_;
  const Evaluate evaluate_;
  std::set<std::string> seen_;  // names, with a line or damaged
  std::string ended_before_;    // ENDED at the start
};

}  // namespace weir

#endif  // WORKER_EVALUATE_EVALUATOR_H_
