// Makes one curve of what the workers report: the lines of train.jsonl.
//
// Place: inside JobState. Only the chief writes the file, so that its steps
// rise: TensorBoard drops a line whose step is smaller than the one before.
//
//   {"step":20,"loss":0.51,"learning_rate":0.001,"examples_per_second":9000,
//    "staleness_mean":0.5,"staleness_max":2,"seconds":1.25,"examples":1280,
//    "bytes_pushed":33731840,"bytes_pulled":33731840,"residuals_lost":0,
//    "phases":{"contributions":20, ...}}
//
// Terms
//   step      sync: steps done; else contributions done, including those before
//             this history.
//   loss      sync: the weighted mean over the contributions of the step that
//             ends at `step`, summed in their order; else the weighted mean
//             over the contributions since the last line.
//   seconds, examples
//             since training began, under all chiefs of the job.
//   examples_per_second, staleness_*
//             over the newest second or so, since reports come in bursts, one
//             burst with each heartbeat.
//   bytes_*   payloads of all workers since this chief began.
//   residuals_lost
//             how many workers took over a slot without the residuals of the
//             worker before (Compression in job_spec.proto), since this chief
//             began.
//   phases    where the workers' time went since this chief began
//             (PhaseTotals). It is left out before a worker has reported any.
//
// In a job of scripts (SDK) a line comes at most once a second, and has what
// the programs reported since the line before: under its name, the weighted
// mean of each metric, "loss" among them. examples and examples_per_second are
// there once a program has told how many examples it computed on. There is no
// learning_rate, unless a program reports it.
//
// Invariants
//   I1. `step` rises from line to line. In a job of scripts it may stay: what a
//       program reports behind its last push has a line of its own.
//   I2. In sync, `loss` depends on the contributions alone, not on who computed
//       them or when.
//   I3. Whatever numbers are reported, no more reports are kept than belong to
//       the steps of a window around the newest one that is done
//       (kReportsAheadMax).
// Threads: compatible.
#ifndef SERVER_CHIEF_STATE_TRAIN_LOG_H_
#define SERVER_CHIEF_STATE_TRAIN_LOG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "proto/chief.pb.h"
#include "server/chief/state/phase_totals.h"

namespace weir {

class TrainLog {
 public:
  struct Options {
    uint32_t contributions_per_step = 0;  // 0: not sync
    uint32_t every_steps = 10;
    uint64_t base_step = 0;  // at which this chief's lines begin
    // The lines are of what programs of the SDK report.
    bool of_scripts = false;
    // Sync: the history's first step, and the contributions before it.
    uint64_t first_contribution = 0;
    uint64_t first_step = 0;
    double base_seconds = 0.0;   // in the last line before base_step
    uint64_t base_examples = 0;  // in the same line
    int64_t begin_ns = 0;        // now
    // The learning rate of update number t = 0, 1, ...
    std::function<double(uint64_t)> learning_rate;
  };

  explicit TrainLog(Options options);

  void AddContribution(const ContributionReport& report, int64_t now_ns);
  // Counts contributions that are done and that nobody will report any more.
  void AddUnreported(uint64_t count);
  // Adds what a heartbeat counts beside its contributions: staleness, bytes,
  // time.
  void AddCounts(const Progress& progress);
  // Returns the step that a contribution is a part of, and 0 if it was done
  // before this history. In async it is the place in the list of all: nobody
  // knows how many will be done before it.
  uint64_t StepOf(uint64_t contribution) const;

  // Returns the lines that became due. `step_done` is how many steps are done
  // by now in sync, else how many contributions.
  std::vector<std::string> Advance(uint64_t step_done, int64_t now_ns);
  // Returns the lines that are still due, and one for the last step if it has
  // none.
  std::vector<std::string> End(uint64_t step_done, int64_t now_ns);

  // Since training began, under all chiefs of the job.
  double seconds(int64_t now_ns) const;

  // What the newest line says: loss, speed, staleness and examples.
  const ChiefStatus& newest() const { return newest_; }

 private:
  // Reports come in bursts: a speed over less than this means nothing.
  static constexpr int64_t kRateWindowNs = 1'000'000'000;
  // How long a complete step waits for reports that are on their way.
  static constexpr int64_t kReportWaitNs = 2'000'000'000;
  // Between two lines of a job of scripts, whose steps may take a microsecond.
  static constexpr int64_t kScriptLineNs = 1'000'000'000;

  struct Report {
    float loss = 0.0f;
    float weight = 0.0f;
    uint32_t rows = 0;
    int64_t done_ns = 0;
  };
  // By index in the step, so that sums have one order.
  using StepReports = std::map<uint32_t, Report>;

  void AddRows(uint64_t rows);
  // Whether reports of `step` are kept (I3).
  bool InReach(uint64_t step) const;
  // Ends the window with a line.
  void AddLine(uint64_t step, std::optional<double> loss, int64_t now_ns);
  void AddMetrics(const MetricSums& metrics);
  // The same if a program has reported anything in the window.
  void AddScriptLine(uint64_t step, int64_t now_ns);
  // What follows "loss" in a line, from its comma on.
  std::string RestOfLine(uint64_t step, int64_t now_ns) const;
  void SettleSteps(uint64_t step_done, int64_t wait_ns, int64_t now_ns);

  const Options options_;
  // Sync: reports of steps that have no line yet.
  std::map<uint64_t, StepReports> steps_;
  uint64_t next_step_ = 0;  // first step that is not settled
  uint64_t step_done_ = 0;  // the newest that Advance told
  int64_t waiting_since_ns_ = 0;
  uint64_t waiting_until_step_ = 0;
  std::optional<double> last_step_loss_;

  // The window since the last line.
  double loss_sum_ = 0.0;
  double weight_sum_ = 0.0;
  uint64_t staleness_sum_ = 0;
  uint64_t staleness_count_ = 0;
  uint64_t staleness_max_window_ = 0;
  uint64_t bytes_pushed_ = 0;
  uint64_t bytes_pulled_ = 0;
  uint64_t residuals_lost_ = 0;
  PhaseTotals phases_;
  MetricSums metrics_;                  // scripts: of the window
  std::set<std::string> metric_names_;  // of all windows
  int64_t line_ns_ = 0;                 // of the last line
  uint64_t rate_rows_ = 0;              // since rate_begin_ns_
  int64_t rate_begin_ns_ = 0;
  bool rate_known_ = false;
  uint64_t line_step_ = 0;        // of the last line
  uint64_t count_ = 0;            // async: contributions done
  std::vector<std::string> due_;  // lines that nobody has taken yet
  ChiefStatus newest_;
};

// What a restarted chief reads of a line of train.jsonl.
struct TrainLine {
  uint64_t step = 0;
  double seconds = 0.0;
  uint64_t examples = 0;
  double loss = 0.0;  // NaN where it was none
  double examples_per_second = 0.0;
  double staleness_mean = 0.0;
};
// Returns nullopt if `line` is not a whole line of train.jsonl.
std::optional<TrainLine> ParseTrainLine(const std::string& line);

}  // namespace weir

#endif  // SERVER_CHIEF_STATE_TRAIN_LOG_H_
