#include "deploy/launcher/summary.h"

#include <algorithm>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace weir {
namespace {

using Json = nlohmann::json;

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

double Number(const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end() || !it->is_number()) {
    return 0;  // an older version may have written the line
  }
  return it->get<double>();
}

uint64_t Count(const Json& json, const char* key) {
  return static_cast<uint64_t>(Number(json, key));
}

// Reads the phases of one line of train.jsonl.
RunPhases ReadPhases(const Json& line) {
  RunPhases phases;
  const auto it = line.find("phases");
  if (it == line.end() || !it->is_object() ||
      Count(*it, "contributions") == 0) {
    return phases;
  }
  const Json& json = *it;
  phases.contributions = Count(json, "contributions");
  // The file has sums over contributions, so that readers may take differences.
  const auto mean_ms = [&](const char* key) {
    return Number(json, key) * 1e3 / static_cast<double>(phases.contributions);
  };
  phases.step_ms = mean_ms("step_seconds");
  phases.data_wait_ms = mean_ms("data_wait_seconds");
  phases.pull_wait_ms = mean_ms("pull_wait_seconds");
  phases.compute_ms = mean_ms("compute_seconds");
  phases.push_wait_ms = mean_ms("push_wait_seconds");
  if (json.contains("gpu_busy_share")) {
    phases.gpu_busy_share = Number(json, "gpu_busy_share");
  }
  phases.device_bytes_used = Count(json, "device_bytes_used");
  phases.device_bytes_reserved = Count(json, "device_bytes_reserved");
  phases.device_bytes_total = Count(json, "device_bytes_total");
  phases.nvml_gpu_percent = Number(json, "nvml_gpu_percent");
  phases.nvml_watts = Number(json, "nvml_watts");
  return phases;
}

double ShareOfStep(const RunPhases& phases, double ms) {
  if (phases.step_ms <= 0) {
    return 0;  // the steps took no time that the clock shows
  }
  return ms / phases.step_ms;
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

nlohmann::ordered_json PhasesJson(const RunPhases& phases) {
  if (phases.contributions == 0) {
    return nullptr;
  }
  nlohmann::ordered_json json;
  json["contributions"] = phases.contributions;
  json["step_ms"] = phases.step_ms;
  const auto part = [&](const std::string& name, double ms) {
    json[name + "_ms"] = ms;
    json[name + "_share"] = ShareOfStep(phases, ms);
  };
  part("data_wait", phases.data_wait_ms);
  part("pull_wait", phases.pull_wait_ms);
  part("compute", phases.compute_ms);
  part("push_wait", phases.push_wait_ms);
  if (phases.gpu_busy_share.has_value()) {
    json["gpu_busy_share"] = *phases.gpu_busy_share;
    json["device_bytes_used"] = phases.device_bytes_used;
    json["device_bytes_reserved"] = phases.device_bytes_reserved;
  }
  // These are left out when they are unknown: a reader would take a 0 for a
  // measurement.
  const auto known = [&json](const char* name, auto value) {
    if (value > 0) {
      json[name] = value;
    }
  };
  known("device_bytes_total", phases.device_bytes_total);
  known("nvml_gpu_percent", phases.nvml_gpu_percent);
  known("nvml_watts", phases.nvml_watts);
  return json;
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
    const uint64_t step = static_cast<uint64_t>(Number(line, "step"));
    // Each line's mean is over the steps since the line before, so it weighs as
    // much as they are. After a resume `step` goes back; that line weighs 0.
    const double steps = static_cast<double>(step - std::min(before, step));
    weighted_staleness += steps * Number(line, "staleness_mean");
    weight += steps;
    summary->staleness_max =
        std::max(summary->staleness_max,
                 static_cast<uint64_t>(Number(line, "staleness_max")));
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
    summary->phases = ReadPhases(last);
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
  nlohmann::ordered_json json;
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
  json["phases"] = PhasesJson(summary.phases);
  json["checkpoint"] = summary.checkpoint;
  json["model_sha256"] = summary.model_sha256;
  json["tasks"] = nlohmann::ordered_json::array();
  for (const LocalTask& task : summary.tasks) {
    json["tasks"].push_back({{"role", task.role},
                             {"index", task.index},
                             {"exit_code", task.exit_code},
                             {"restarts", task.restarts}});
  }
  return json.dump(2) + "\n";
}

std::string LargestWait(const RunPhases& phases) {
  const char* name = "data";
  double ms = phases.data_wait_ms;
  if (phases.pull_wait_ms > ms) {
    name = "pull";
    ms = phases.pull_wait_ms;
  }
  if (phases.push_wait_ms > ms) {
    name = "push";
    ms = phases.push_wait_ms;
  }
  const double share = ShareOfStep(phases, ms);
  // Below that the sentence would send a reader after noise.
  if (share < 0.01) {
    return "none over 1% of a step";
  }
  return absl::StrFormat("%s, %.1f%% of a step (%s of %s)", name, share * 100,
                         Milliseconds(ms), Milliseconds(phases.step_ms));
}

std::string GpuUse(const RunPhases& phases) {
  std::string text = absl::StrFormat("%.0f%% of a step",
                                     phases.gpu_busy_share.value_or(0) * 100);
  const auto gib = [](uint64_t bytes) {
    return static_cast<double>(bytes) / (1 << 30);
  };
  if (phases.device_bytes_total > 0) {
    absl::StrAppendFormat(&text, ", %.1f of %.0f GiB used",
                          gib(phases.device_bytes_used),
                          gib(phases.device_bytes_total));
  } else {
    absl::StrAppendFormat(&text, ", %.1f GiB used",
                          gib(phases.device_bytes_used));
  }
  return text;
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
  if (summary.phases.contributions > 0) {
    row("largest wait", LargestWait(summary.phases));
  }
  if (summary.phases.gpu_busy_share.has_value()) {
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
