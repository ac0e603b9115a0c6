// The curves of a run for TensorBoard: DIR/tensorboard/train and .../eval.
//
// Place: the chief hands it the lines of train.jsonl, the evaluator those of
//   eval.jsonl. Every number of a line becomes a point of a curve at its step.
//
// Each file begins with the job's text, its hyperparameters and which curves
// share a chart, where it has a job. The first file is made with the first
// line. A curve never harms a job: what cannot be written is left out, and the
// first failure in a row is logged.
//
// Threads: compatible.
#ifndef PROTO_TENSORBOARD_BOARD_H_
#define PROTO_TENSORBOARD_BOARD_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/io/files.h"
#include "nlohmann/json.hpp"
#include "proto/job_spec.pb.h"
#include "proto/tensorboard/event_file.h"
#include "proto/tensorboard/summaries.h"

namespace weir {

class Board {
 public:
  struct Options {
    Files* files = Files::Real();
    Clock* clock = Clock::Real();
    std::string directory;  // "": no curves
    std::string job_text;   // "": no text, hyperparameters and charts
    Hparams hparams;
  };

  explicit Board(Options options);

  void AddLine(absl::string_view line);
  // Steps are going to begin earlier again: the lines that come take the place
  // of those that were beyond.
  void Restart() { file_.Close(); }
  // The run has ended. Without a line before, nothing is written.
  void End(bool success);

 private:
  absl::Status Write(const nlohmann::json& line);
  absl::Status WriteJob(uint64_t step);
  void AddPhases(const nlohmann::json& phases, tensorboard::Summary* summary);
  void Add(const std::string& tag, double value, tensorboard::Summary* summary);
  void WarnOnce(const absl::Status& status);
  double Now() const;

  const Options options_;
  EventFile file_;
  std::set<std::string> tags_;            // in the file
  std::map<std::string, double> phases_;  // of the line before
  uint64_t step_ = 0;                     // of the line before
  bool failing_ = false;
};

// The hyperparameters of a job on a cluster: how it trains, and not its model
// or data.
Hparams HparamsOfJob(const JobSpec& spec, int ps_count, int worker_count);

}  // namespace weir

#endif  // PROTO_TENSORBOARD_BOARD_H_
