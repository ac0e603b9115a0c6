// Follows a run's committed checkpoints and appends a line for each to
// eval.jsonl.
//
// Place: it stands outside the cluster and talks to no process. It reads
//   DIR/checkpoints and ends when DIR/DONE names a checkpoint that it has
//   evaluated (the chief waits for that checkpoint's line), or when DIR/ENDED
//   says that the run ended otherwise. The DONE of a job that was shorter does
//   not count: its chief goes on from there and removes it.
//
// A line: {"checkpoint": "ckpt-500", "step": 500, "examples": 2000,
//          "seconds": 0.4, "loss": ..., "accuracy": ...}
//
// Threads: compatible.
#ifndef WORKER_EVALUATE_EVALUATOR_H_
#define WORKER_EVALUATE_EVALUATOR_H_

#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/io/files.h"
#include "common/io/growing_file.h"
#include "proto/job_spec.pb.h"
#include "worker/evaluate/evaluation.h"

namespace weir {

class Evaluator {
 public:
  using Evaluate =
      std::function<absl::StatusOr<EvaluationResult>(const std::string& dir)>;

  // Borrows files and clock. `train` says how long the job is. Lines already in
  // eval.jsonl are not repeated.
  Evaluator(ObjectStore* files, Clock* clock, std::string workdir, Train train,
            Evaluate evaluate);

  // Evaluates the newest checkpoint if it has no line yet. Older ones without a
  // line are skipped, and so is one that is deleted while it is read. Returns
  // true when nothing is left to do: DONE is there and its checkpoint has a
  // line, or cannot be evaluated.
  // Errors: those of the evaluation, DATA_LOSS for instance. That checkpoint is
  //   not evaluated again. UNAVAILABLE: it is at the next Poll.
  absl::StatusOr<bool> Poll();

  // Polls until the run is done. Returns why its last checkpoint has no line,
  // or why the run ended before that; CANCELLED once `stopped` says so.
  absl::Status Follow(const std::function<bool()>& stopped);

  // How long to wait before the next Poll: 200 ms, or 1 s in an object store.
  // There each look is paid for, so checkpoints are listed 1 s after one was
  // found, then after 2 s and so on, up to 30 s, and each time once DONE names
  // a checkpoint without a line.
  std::chrono::milliseconds pause() const;

  // Returns why the run ended before it was done; OK while it goes on. An ENDED
  // that was there at the start belongs to an earlier run in this directory,
  // until the chief removes it.
  absl::Status Ended();

 private:
  // Whether the job is as long as the one of this checkpoint, which DONE names.
  absl::StatusOr<bool> IsEnd(const std::string& checkpoint);
  // Whether there was a checkpoint without a line.
  absl::StatusOr<bool> EvaluateNewest();
  absl::Status AppendLine(const EvaluationResult& result, double seconds);

  ObjectStore* const files_;
  Clock* const clock_;
  const std::string workdir_;
  const Train train_;
  GrowingFile lines_;
  const Evaluate evaluate_;
  // Of checkpoints: OK where there is a line, else why there is none.
  std::map<std::string, absl::Status> seen_;
  absl::Status last_;         // that of the checkpoint that DONE names
  std::string ended_before_;  // the text of ENDED at the start
  std::chrono::nanoseconds list_every_;
  int64_t listed_ns_ = 0;  // when the checkpoints were listed last
};

}  // namespace weir

#endif  // WORKER_EVALUATE_EVALUATOR_H_
