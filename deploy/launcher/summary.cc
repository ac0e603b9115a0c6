#include "deploy/launcher/summary.h"

#include <algorithm>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace weir {
namespace {

using Json = nlohmann::ordered_json;

// Returns the lines of a .jsonl file that parse. The last line may be torn: the
// process that wrote it may have been killed.
std::vector<Json> ReadLines(Files* files, const std::string& path) {
  std::vector<Json> lines;
  const absl::StatusOr<std::string> text = files->ReadAll(path);
  if (!text.ok()) {
    return lines;
  }
  std::istringstream stream(*text);
  for (std::string line; std::getline(stream, line);) {
    Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object()) {
      lines.push_back(std::move(json));
    }
  }
  return lines;
}

double Number(const Json& json, const std::string& key) {
  const auto it = json.find(key);
  if (it == json.end() || !it->is_number()) {
    return 0;  // an older version may have written the line
  }
  return it->get<double>();
}

uint64_t Count(const Json& json, const std::string& key) {
  return static_cast<uint64_t>(Number(json, key));
}

// Shows two or three digits: 0.035, 0.8, 6.5, 123.
std::string Milliseconds(double ms) {
  if (ms < 1) {
    return absl::StrFormat("%.2g ms", ms);
  }
  if (ms < 100) {
    return absl::StrFormat("%.1f ms", ms);
  }
  return absl::StrFormat("%.0f ms", ms);
}

}  // namespace

std::map<std::string, int> TaskCounts(Files* files,
                                      const std::string& workdir) {
  std::map<std::string, int> counts;
  const auto text = files->ReadAll(absl::StrCat(workdir, "/summary.json"));
  // A missing file reads as "", which does not parse. A broken one must not
  // stop a resume either: the counts are only a default.
  const Json json = Json::parse(text.value_or(""), nullptr, false);
  if (json.is_object() && json.contains("tasks")) {
    for (const Json& task : json["tasks"]) {
      if (task.is_object() && task.contains("role") &&
          task["role"].is_string()) {
        ++counts[task["role"].get<std::string>()];
      }
    }
  }
  return counts;
}

void ReadCurves(Files* files, const std::string& workdir, RunSummary* summary) {
  const std::vector<Json> curve =
      ReadLines(files, absl::StrCat(workdir, "/train.jsonl"));
  double weighted_staleness = 0;
  double weight = 0;
  uint64_t before = 0;
  for (const Json& line : curve) {
    const uint64_t step = Count(line, "step");
    // Each line's mean is over the steps since the line before, so it weighs as
    // much as they are. After a resume `step` goes back; that line weighs 0.
    const double steps = static_cast<double>(step - std::min(before, step));
    weighted_staleness += steps * Number(line, "staleness_mean");
    weight += steps;
    summary->staleness_max =
        std::max(summary->staleness_max, Count(line, "staleness_max"));
    before = step;
  }
  if (!curve.empty()) {
    // But for the loss and the staleness these are totals, so the last line
    // alone tells them.
    const Json& last = curve.back();
    summary->steps = Count(last, "step");
    summary->examples = Count(last, "examples");
    summary->final_metrics["loss"] = Number(last, "loss");
    summary->bytes_pushed = Count(last, "bytes_pushed");
    summary->bytes_pulled = Count(last, "bytes_pulled");
    summary->residuals_lost = Count(last, "residuals_lost");
    summary->phases = PhasesOf(last);
    const double seconds = Number(last, "seconds");
    if (seconds > 0) {
      summary->examples_per_second =
          static_cast<double>(summary->examples) / seconds;
    }
  }
  if (weight > 0) {
    summary->staleness_mean = weighted_staleness / weight;
  }
  const std::vector<Json> evaluations =
      ReadLines(files, absl::StrCat(workdir, "/eval.jsonl"));
  if (!evaluations.empty()) {
    // The job file chooses the metrics: what is not of the line itself is one.
    for (const auto& [key, value] : evaluations.back().items()) {
      if (value.is_number() && key != "step" && key != "seconds" &&
          key != "examples") {
        summary->final_metrics[key] = value.get<double>();
      }
    }
  }
}

std::string SummaryJson(const RunSummary& summary) {
  Json json;
  json["status"] = summary.status;
  json["steps"] = summary.steps;
  json["examples"] = summary.examples;
  json["wall_seconds"] = summary.wall_seconds;
  json["examples_per_second"] = summary.examples_per_second;
  json["mode"] = summary.mode;
  json["final_metrics"] = summary.final_metrics;
  json["staleness"] = {{"mean", summary.staleness_mean},
                       {"max", summary.staleness_max}};
  json["bytes"] = {{"pushed", summary.bytes_pushed},
                   {"pulled", summary.bytes_pulled}};
  json["residuals_lost"] = summary.residuals_lost;
  json["phases"] = summary.phases;
  json["checkpoint"] = summary.checkpoint;
  json["model_sha256"] = summary.model_sha256;
  json["tasks"] = Json::array();
  for (const LocalTask& task : summary.tasks) {
    json["tasks"].push_back({{"role", task.role},
                             {"index", task.index},
                             {"exit_code", task.exit_code},
                             {"restarts", task.restarts}});
  }
  return json.dump(2) + "\n";
}

Json PhasesOf(const Json& line) {
  const Json sums = line.value("phases", Json());
  const double count = Number(sums, "contributions");
  if (count == 0) {
    return nullptr;
  }
  // The file has sums over contributions, so that readers may take differences.
  const double step_ms = Number(sums, "step_seconds") * 1e3 / count;
  Json phases;
  phases["contributions"] = Count(sums, "contributions");
  phases["step_ms"] = step_ms;
  for (const std::string part :
       {"data_wait", "pull_wait", "compute", "push_wait"}) {
    const double ms = Number(sums, part + "_seconds") * 1e3 / count;
    phases[part + "_ms"] = ms;
    // Steps may take no time that the clock shows.
    phases[part + "_share"] = step_ms > 0 ? ms / step_ms : 0.0;
  }
  if (sums.contains("gpu_busy_share")) {
    phases["gpu_busy_share"] = Number(sums, "gpu_busy_share");
    phases["device_bytes_used"] = Count(sums, "device_bytes_used");
    phases["device_bytes_reserved"] = Count(sums, "device_bytes_reserved");
  }
  // These are left out when they are unknown: a reader would take a 0 for a
  // measurement.
  for (const char* key :
       {"device_bytes_total", "nvml_gpu_percent", "nvml_watts"}) {
    if (Number(sums, key) > 0) {
      phases[key] = sums[key];
    }
  }
  return phases;
}

std::string LargestWait(const Json& phases) {
  std::string largest = "data";
  for (const std::string part : {"pull", "push"}) {
    if (Number(phases, part + "_wait_ms") >
        Number(phases, largest + "_wait_ms")) {
      largest = part;
    }
  }
  const double share = Number(phases, largest + "_wait_share");
  // Below that the sentence would send a reader after noise.
  if (share < 0.01) {
    return "none over 1% of a step";
  }
  return absl::StrFormat("%s, %.1f%% of a step (%s of %s)", largest,
                         share * 100,
                         Milliseconds(Number(phases, largest + "_wait_ms")),
                         Milliseconds(Number(phases, "step_ms")));
}

std::string GpuUse(const Json& phases) {
  const auto gib = [&phases](const char* key) {
    return Number(phases, key) / (1 << 30);
  };
  std::string total;
  if (phases.contains("device_bytes_total")) {
    total = absl::StrFormat(" of %.0f", gib("device_bytes_total"));
  }
  return absl::StrFormat("%.0f%% of a step, %.1f%s GiB used",
                         Number(phases, "gpu_busy_share") * 100,
                         gib("device_bytes_used"), total);
}

std::string SummaryTable(const RunSummary& summary) {
  std::string table;
  const auto row = [&table](const std::string& name, const std::string& value) {
    absl::StrAppendFormat(&table, "  %-14s %s\n", name, value);
  };
  row("status", summary.status);
  row("mode", summary.mode);
  row("steps", absl::StrCat(summary.steps));
  row("examples", absl::StrFormat("%d (%.0f/s)", summary.examples,
                                  summary.examples_per_second));
  row("wall time", absl::StrFormat("%.1f s", summary.wall_seconds));
  for (const auto& [name, value] : summary.final_metrics) {
    row(name, absl::StrFormat("%.4f", value));
  }
  row("staleness", absl::StrFormat("mean %.2f, max %d", summary.staleness_mean,
                                   summary.staleness_max));
  // Megabytes of 10^6 bytes, as networks are rated.
  const auto megabytes = [](uint64_t bytes) {
    return absl::StrFormat("%.1f MB", static_cast<double>(bytes) * 1e-6);
  };
  row("bytes", absl::StrCat("pushed ", megabytes(summary.bytes_pushed),
                            ", pulled ", megabytes(summary.bytes_pulled)));
  if (summary.residuals_lost > 0) {
    row("residuals lost", absl::StrCat(summary.residuals_lost));
  }
  if (!summary.phases.is_null()) {
    row("largest wait", LargestWait(summary.phases));
  }
  if (summary.phases.contains("gpu_busy_share")) {
    row("gpu busy", GpuUse(summary.phases));
  }
  row("checkpoint", summary.checkpoint.empty() ? "none" : summary.checkpoint);
  if (!summary.model_sha256.empty()) {
    row("model sha256", summary.model_sha256);
  }
  int restarts = 0;
  for (const LocalTask& task : summary.tasks) {
    restarts += task.restarts;
  }
  row("tasks",
      absl::StrFormat("%d, restarts %d", summary.tasks.size(), restarts));
  return table;
}

}  // namespace weir
