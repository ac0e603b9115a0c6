// The curves of a run for TensorBoard: DIR/tensorboard/train and .../eval.
//
// Place: the chief hands it the lines of train.jsonl, the evaluator those of
//   eval.jsonl. Every number of a line becomes a point of a curve at its step.
//   The chief also hands it the histograms that workers send.
//
// Each file begins with the job's text, its hyperparameters and which curves
// share a chart, where it has a job. The first file is made with the first
// line or histogram. A curve never harms a job: what cannot be written is left
// out, and the first failure in a row is logged.
//
// Threads: compatible.
#ifndef PROTO_TENSORBOARD_BOARD_H_
#define PROTO_TENSORBOARD_BOARD_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

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
  // Adds histograms by their tags, and a curve of how many numbers of a tag are
  // NaN or infinite where there are any. Those that come behind a later step
  // are left out: TensorBoard would drop what is beyond them.
  void AddHistograms(
      uint64_t step,
      const std::vector<std::pair<std::string, Histogram>>& histograms);
  // Steps are going to begin earlier again: the lines that come take the place
  // of those that were beyond.
  void Restart() {
    file_.Close();
    histogram_step_ = 0;
  }
  // The run has ended. Without a line before, nothing is written.
  void End(bool success);

 private:
  absl::Status Write(const nlohmann::json& line);
  // Begins a file if the next event does.
  absl::Status BeginFile(uint64_t step);
  void AddPhases(const nlohmann::json& phases, tensorboard::Summary* summary);
  void Add(const std::string& tag, double value, tensorboard::Summary* summary);
  void WarnOnce(const absl::Status& status);
  double Now() const;

  const Options options_;
  EventFile file_;
  std::set<std::string> tags_;            // in the file
  std::map<std::string, double> phases_;  // of the line before
  uint64_t step_ = 0;                     // of the line before
  uint64_t histogram_step_ = 0;           // of the newest histograms
  bool failing_ = false;
};

// The hyperparameters of a job on a cluster: how it trains, and not its model
// or data.
Hparams HparamsOfJob(const JobSpec& spec, int ps_count, int worker_count);

}  // namespace weir

#endif  // PROTO_TENSORBOARD_BOARD_H_
