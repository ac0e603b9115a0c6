#include "deploy/launcher/summary.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/io/growing_file.h"
#include "nlohmann/json.hpp"

namespace weir {
namespace {

using Json = nlohmann::ordered_json;

// Calls `take` with the lines of a .jsonl file that parse. The last line may be
// torn: the process that wrote it may have been killed.
void ReadLines(ObjectStore* files, const std::string& path,
               const std::function<void(Json line)>& take) {
  const absl::Status read =
      GrowingFile(files, path).ReadLines([&](absl::string_view line) {
        Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
        if (json.is_object()) {
          take(std::move(json));
        }
      });
  read.IgnoreError();  // a summary of what can be read
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

// Whether `json` is what a metric may be: null stands for NaN and infinity.
bool IsMetric(const Json& json) { return json.is_number() || json.is_null(); }

// 0 where there is nothing to divide by, as for steps that take no time that
// the clock shows.
double Quotient(double dividend, double divisor) {
  return divisor > 0 ? dividend / divisor : 0.0;
}

// Shows two or three digits: 0.035, 0.8, 6.5, 123.
std::string MillisecondsText(double ms) {
  if (ms < 1) {
    return absl::StrFormat("%.2g ms", ms);
  }
  if (ms < 100) {
    return absl::StrFormat("%.1f ms", ms);
  }
  return absl::StrFormat("%.0f ms", ms);
}

}  // namespace

void ReadCurves(ObjectStore* files, const std::string& workdir, Json* summary) {
  double weighted_staleness = 0;
  double weight = 0;
  uint64_t staleness_max = 0;
  uint64_t before = 0;
  Json last = Json::object();
  Json metrics = Json::object();
  ReadLines(files, absl::StrCat(workdir, "/train.jsonl"), [&](Json line) {
    const uint64_t step = Count(line, "step");
    // Each line's mean is over the steps since the line before, so it weighs as
    // much as they are. After a resume `step` goes back; that line weighs 0.
    const double steps = static_cast<double>(step - std::min(before, step));
    weighted_staleness += steps * Number(line, "staleness_mean");
    weight += steps;
    staleness_max = std::max(staleness_max, Count(line, "staleness_max"));
    before = step;
    // But for the loss and the staleness these are totals, so the last line
    // alone tells them.
    const auto loss = line.find("loss");
    if (loss != line.end() && IsMetric(*loss)) {
      metrics["loss"] = *loss;
    }
    last = std::move(line);
  });
  Json evaluation = Json::object();
  ReadLines(files, absl::StrCat(workdir, "/eval.jsonl"),
            [&](Json line) { evaluation = std::move(line); });
  // The job file chooses the metrics: what is not of the line itself is one.
  for (const auto& [key, value] : evaluation.items()) {
    if (IsMetric(value) && key != "step" && key != "seconds" &&
        key != "examples") {
      metrics[key] = value;
    }
  }
  (*summary)["steps"] = Count(last, "step");
  (*summary)["examples"] = Count(last, "examples");
  (*summary)["examples_per_second"] =
      Quotient(Number(last, "examples"), Number(last, "seconds"));
  (*summary)["final_metrics"] = metrics;
  (*summary)["staleness"] = {{"mean", Quotient(weighted_staleness, weight)},
                             {"max", staleness_max}};
  (*summary)["bytes"] = {{"pushed", Count(last, "bytes_pushed")},
                         {"pulled", Count(last, "bytes_pulled")}};
  (*summary)["residuals_lost"] = Count(last, "residuals_lost");
  (*summary)["phases"] = PhasesOf(last);
}

Json TasksJson(const std::vector<LocalTask>& tasks) {
  Json json = Json::array();
  for (const LocalTask& task : tasks) {
    json.push_back({{"role", task.role},
                    {"index", task.index},
                    {"exit_code", task.exit_code},
                    {"restarts", task.restarts}});
  }
  return json;
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
    phases[part + "_share"] = Quotient(ms, step_ms);
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
                         MillisecondsText(Number(phases, largest + "_wait_ms")),
                         MillisecondsText(Number(phases, "step_ms")));
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

std::string SummaryTable(const Json& summary) {
  std::string table;
  const auto row = [&table](const std::string& name, const std::string& value) {
    absl::StrAppendFormat(&table, "  %-14s %s\n", name, value);
  };
  row("status", summary["status"]);
  row("mode", summary["mode"]);
  row("steps", absl::StrCat(Count(summary, "steps")));
  row("examples", absl::StrFormat("%d (%.0f/s)", Count(summary, "examples"),
                                  Number(summary, "examples_per_second")));
  row("wall time", absl::StrFormat("%.1f s", Number(summary, "wall_seconds")));
  for (const auto& [name, value] : summary["final_metrics"].items()) {
    row(name,
        value.is_null() ? "nan" : absl::StrFormat("%.4f", value.get<double>()));
  }
  const Json& staleness = summary["staleness"];
  row("staleness",
      absl::StrFormat("mean %.2f, max %d", Number(staleness, "mean"),
                      Count(staleness, "max")));
  // Megabytes of 10^6 bytes, as networks are rated.
  const Json& bytes = summary["bytes"];
  row("bytes", absl::StrFormat("pushed %.1f MB, pulled %.1f MB",
                               Number(bytes, "pushed") * 1e-6,
                               Number(bytes, "pulled") * 1e-6));
  if (Count(summary, "residuals_lost") > 0) {
    row("residuals lost", absl::StrCat(Count(summary, "residuals_lost")));
  }
  const Json& phases = summary["phases"];
  if (!phases.is_null()) {
    row("largest wait", LargestWait(phases));
  }
  if (phases.contains("gpu_busy_share")) {
    row("gpu busy", GpuUse(phases));
  }
  const std::string checkpoint = summary["checkpoint"];
  row("checkpoint", checkpoint.empty() ? "none" : checkpoint);
  if (summary["model_sha256"] != "") {
    row("model sha256", summary["model_sha256"]);
  }
  uint64_t restarts = 0;
  for (const Json& task : summary["tasks"]) {
    restarts += Count(task, "restarts");
  }
  row("tasks",
      absl::StrFormat("%d, restarts %d", summary["tasks"].size(), restarts));
  return table;
}

}  // namespace weir
