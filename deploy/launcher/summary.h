// The end of a run: DIR/summary.json and a table for people.
//
// Place: reads what the tasks left in the working directory: train.jsonl (the
// curve), eval.jsonl, the newest checkpoint.
#ifndef DEPLOY_LAUNCHER_SUMMARY_H_
#define DEPLOY_LAUNCHER_SUMMARY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/io/files.h"
#include "deploy/launcher/supervisor.h"

namespace weir {

// Where the workers' time went: means over contributions, since the last start
// of the chief (server/chief/state/phase_totals.h).
struct RunPhases {
  uint64_t contributions = 0;  // 0 when no worker reported its phases
  double step_ms = 0;
  double data_wait_ms = 0;
  double pull_wait_ms = 0;
  double compute_ms = 0;
  double push_wait_ms = 0;
  std::optional<double> gpu_busy_share;  // of a step; unset without a GPU
  // Each of these is 0 when it is unknown.
  uint64_t device_bytes_used = 0;
  uint64_t device_bytes_reserved = 0;
  uint64_t device_bytes_total = 0;
  double nvml_gpu_percent = 0;
  double nvml_watts = 0;
};

struct RunSummary {
  std::string status;  // "done", "failed", "interrupted"
  uint64_t steps = 0;
  uint64_t examples = 0;
  double wall_seconds = 0;         // of the whole run
  double examples_per_second = 0;  // while training
  std::string mode;                // "async", "sync", "bounded_staleness"
  std::map<std::string, double> final_metrics;
  double staleness_mean = 0;
  uint64_t staleness_max = 0;
  uint64_t bytes_pushed = 0;  // payloads, since the last start of the chief
  uint64_t bytes_pulled = 0;
  uint64_t residuals_lost = 0;
  RunPhases phases;
  std::string checkpoint;    // name of the newest; "" without a checkpoint
  std::string model_sha256;  // over the exported values in declared order
  std::vector<LocalTask> tasks;
};

// Fills in what the files in `workdir` tell. The fields of a missing file stay
// as they are.
void ReadCurves(Files* files, const std::string& workdir, RunSummary* summary);

// Returns how many tasks of each role the run in `workdir` had when it last
// ended; empty when it left no summary.json that can be read.
std::map<std::string, int> TaskCounts(Files* files, const std::string& workdir);

// Returns the text of summary.json; docs/formats.md lists its fields.
std::string SummaryJson(const RunSummary& summary);
// Returns the same for people: one line for each fact.
std::string SummaryTable(const RunSummary& summary);

// Returns the phase that workers waited for most, as in
// "pull, 12.3% of a step (0.8 ms of 6.5 ms)".
// REQUIRES: phases.contributions > 0.
std::string LargestWait(const RunPhases& phases);
// Returns "93% of a step, 1.2 of 140 GiB used".
// REQUIRES: gpu_busy_share has a value.
std::string GpuUse(const RunPhases& phases);

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_SUMMARY_H_
