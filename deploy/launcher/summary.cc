#include "deploy/launcher/summary.h"

#include <algorithm>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace weir {
namespace {

using Json = nlohmann::json;

// The lines of a .jsonl file that parse; a torn last line is left out.
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
  return it != json.end() && it->is_number() ? it->get<double>() : 0;
}

}  // namespace

std::map<std::string, int> TaskCounts(Files* files,
                                      const std::string& workdir) {
  std::map<std::string, int> counts;
  const auto text = files->ReadAll(absl::StrCat(workdir, "/summary.json"));
  const Json json = Json::parse(text.ok() ? *text : "", nullptr, false);
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
    const double steps = static_cast<double>(step - std::min(before, step));
    weighted_staleness += steps * Number(line, "staleness_mean");
    weight += steps;
    summary->staleness_max =
        std::max(summary->staleness_max,
                 static_cast<uint64_t>(Number(line, "staleness_max")));
    before = step;
  }
  if (!curve.empty()) {
    const Json& last = curve.back();
    summary->steps = static_cast<uint64_t>(Number(last, "step"));
    summary->examples = static_cast<uint64_t>(Number(last, "examples"));
    summary->final_metrics["loss"] = Number(last, "loss");
    const auto count = [&last](const char* key) {
      return static_cast<uint64_t>(Number(last, key));
    };
    summary->bytes_pushed = count("bytes_pushed");
    summary->bytes_pulled = count("bytes_pulled");
    summary->residuals_lost = count("residuals_lost");
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
  const auto megabytes = [](uint64_t bytes) {
    return absl::StrFormat("%.1f MB", static_cast<double>(bytes) * 1e-6);
  };
  row("bytes", absl::StrCat("pushed ", megabytes(summary.bytes_pushed),
                            ", pulled ", megabytes(summary.bytes_pulled)));
  if (summary.residuals_lost > 0) {
    row("residuals lost", absl::StrCat(summary.residuals_lost));
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
