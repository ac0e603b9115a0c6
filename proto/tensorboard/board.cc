#include "proto/tensorboard/board.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/logging.h"
#include "common/base/status.h"

namespace weir {
namespace {

constexpr char kSeconds[] = "_seconds";
constexpr char kStepSeconds[] = "step_seconds";

// Names of curves that belong together share what is before the slash.
std::string TagOf(const std::string& name) {
  for (const char* group : {"staleness", "bytes"}) {
    absl::string_view rest = name;
    if (absl::ConsumePrefix(&rest, absl::StrCat(group, "_"))) {
      return absl::StrCat(group, "/", rest);
    }
  }
  return name;
}

}  // namespace

Hparams HparamsOfJob(const JobSpec& spec, int ps_count, int worker_count) {
  Hparams hparams;
  AddFields(spec.optimizer(), "optimizer", &hparams);
  AddFields(spec.schedule(), "schedule", &hparams);
  AddFields(spec.train(), "train", &hparams);
  AddFields(spec.update(), "update", &hparams);
  AddFields(spec.compression(), "compression", &hparams);
  hparams["seed"].set_number_value(static_cast<double>(spec.seed()));
  hparams["ps"].set_number_value(ps_count);
  hparams["workers"].set_number_value(worker_count);
  return hparams;
}

Board::Board(Options options)
    : options_(std::move(options)),
      file_(options_.files, options_.clock, options_.directory) {}

double Board::Now() const {
  return static_cast<double>(options_.clock->WallNowNs()) / 1e9;
}

void Board::WarnOnce(const absl::Status& status) {
  if (!status.ok() && !failing_) {
    LOG_WARN("TensorBoard's curves have a gap: {}",
             std::string(status.message()));
  }
  failing_ = !status.ok();
}

void Board::AddLine(absl::string_view line) {
  if (options_.directory.empty()) {
    return;
  }
  const nlohmann::json parsed =
      nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_object() &&
      parsed.value("step", nlohmann::json()).is_number()) {
    WarnOnce(Write(parsed));
  }
}

absl::Status Board::Write(const nlohmann::json& line) {
  step_ = line["step"].get<uint64_t>();
  WEIR_RETURN_IF_ERROR(BeginFile(step_));
  tensorboard::Summary summary;
  for (const auto& [name, value] : line.items()) {
    if (name == "phases" && value.is_object()) {
      AddPhases(value, &summary);
    } else if (value.is_number() && name != "step") {
      Add(TagOf(name), value.get<double>(), &summary);
    }
  }
  return file_.Write(step_, std::move(summary));
}

void Board::AddHistograms(
    uint64_t step,
    const std::vector<std::pair<std::string, Histogram>>& histograms) {
  if (options_.directory.empty() || step <= histogram_step_) {
    return;
  }
  histogram_step_ = step;
  absl::Status status = BeginFile(step);
  if (status.ok()) {
    tensorboard::Summary summary;
    for (const auto& [tag, histogram] : histograms) {
      AddHistogram(tag, histogram, tags_.insert(tag).second, &summary);
      if (histogram.not_finite() > 0) {
        Add(absl::StrCat("not_finite/", tag),
            static_cast<double>(histogram.not_finite()), &summary);
      }
    }
    status = file_.Write(step, std::move(summary));
  }
  WarnOnce(status);
}

absl::Status Board::BeginFile(uint64_t step) {
  if (!file_.closed()) {
    return absl::OkStatus();
  }
  tags_.clear();
  if (options_.job_text.empty()) {
    return absl::OkStatus();
  }
  tensorboard::Summary summary;
  AddText("job", absl::StrCat("```\n", options_.job_text, "\n```"), &summary);
  AddHparams(options_.hparams, Now(), &summary);
  AddLayout({{"where the time goes", "phases/.*_wait|phases/compute"},
             {"staleness", "staleness/.*"}},
            &summary);
  return file_.Write(step, std::move(summary));
}

// They are sums since the chief began; a curve shows what came since the line
// before.
void Board::AddPhases(const nlohmann::json& phases,
                      tensorboard::Summary* summary) {
  std::map<std::string, double> now;
  for (const auto& [name, value] : phases.items()) {
    if (value.is_number()) {
      now[name] = value.get<double>();
    }
  }
  const double step = now[kStepSeconds] - phases_[kStepSeconds];
  const double contributions = now["contributions"] - phases_["contributions"];
  if (step > 0 && contributions > 0) {
    Add("phases/step_ms", 1e3 * step / contributions, summary);
  }
  for (const auto& [name, value] : now) {
    if (name == kStepSeconds || name == "contributions") {
      continue;
    }
    if (!absl::EndsWith(name, kSeconds)) {
      Add(absl::StrCat("phases/", name), value, summary);
    } else if (step > 0) {
      Add(absl::StrCat("phases/", absl::StripSuffix(name, kSeconds)),
          (value - phases_[name]) / step, summary);
    }
  }
  phases_ = std::move(now);
}

void Board::Add(const std::string& tag, double value,
                tensorboard::Summary* summary) {
  AddScalar(tag, static_cast<float>(value), tags_.insert(tag).second, summary);
}

void Board::End(bool success) {
  if (file_.closed() || options_.job_text.empty()) {
    return;
  }
  tensorboard::Summary summary;
  AddEnd(success, Now(), &summary);
  WarnOnce(file_.Write(step_, std::move(summary)));
}

}  // namespace weir
