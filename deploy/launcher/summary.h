// The end of a run: DIR/summary.json and a table for people.
//
// Place: reads what the tasks left in the working directory: train.jsonl (the
// curve), eval.jsonl, the newest checkpoint.
#ifndef DEPLOY_LAUNCHER_SUMMARY_H_
#define DEPLOY_LAUNCHER_SUMMARY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/io/files.h"
#include "deploy/launcher/supervisor.h"
#include "nlohmann/json.hpp"

namespace weir {

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
  nlohmann::ordered_json phases;  // PhasesOf the last line
  std::string checkpoint;         // name of the newest; "" without a checkpoint
  std::string model_sha256;       // over the exported values in declared order
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

// Returns where the workers' time went, from one line of train.jsonl: means over
// contributions and shares of a step, as summary.json has them. Null when no
// worker reported its phases. See server/chief/state/phase_totals.h.
nlohmann::ordered_json PhasesOf(const nlohmann::ordered_json& line);
// Returns the phase that workers waited for most, as in
// "pull, 12.3% of a step (0.8 ms of 6.5 ms)". REQUIRES: `phases` is not null.
std::string LargestWait(const nlohmann::ordered_json& phases);
// Returns "93% of a step, 1.2 of 140 GiB used".
// REQUIRES: `phases` has a gpu_busy_share.
std::string GpuUse(const nlohmann::ordered_json& phases);

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_SUMMARY_H_
