// The end of a run: DIR/summary.json and a table for people.
//
// Place: reads what the tasks left in the working directory: train.jsonl (the
// curve) and eval.jsonl. docs/formats.md lists the fields of summary.json.
#ifndef DEPLOY_LAUNCHER_SUMMARY_H_
#define DEPLOY_LAUNCHER_SUMMARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/io/files.h"
#include "deploy/launcher/supervisor.h"
#include "nlohmann/json.hpp"

namespace weir {

// Adds to the object of summary.json what the files in `workdir` tell:
//   steps, examples, examples_per_second (while training), staleness, bytes
//   (payloads) and residuals_lost since the last start of the chief, phases,
//   final_metrics, null where the metric is NaN or infinite.
// What a missing file would tell is 0, null or empty.
void ReadCurves(ObjectStore* files, const std::string& workdir,
                nlohmann::ordered_json* summary);

// Returns the field `tasks` of summary.json.
nlohmann::ordered_json TasksJson(const std::vector<LocalTask>& tasks);

// Returns a whole summary.json for people: one line for each fact.
std::string SummaryTable(const nlohmann::ordered_json& summary);

// Returns where the workers' time went, from one line of train.jsonl: means
// over contributions and shares of a step, as summary.json has them. Null when
// no worker reported its phases. See server/chief/state/phase_totals.h.
nlohmann::ordered_json PhasesOf(const nlohmann::ordered_json& line);
// Returns the phase that workers waited for most, as in
// "pull, 12.3% of a step (0.8 ms of 6.5 ms)". REQUIRES: `phases` is not null.
std::string LargestWait(const nlohmann::ordered_json& phases);
// Returns "93% of a step, 1.2 of 140 GiB used".
// REQUIRES: `phases` has a gpu_busy_share.
std::string GpuUse(const nlohmann::ordered_json& phases);

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_SUMMARY_H_
