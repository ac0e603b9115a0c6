#include "server/chief/state/phase_totals.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/wire/phase_sums.h"

namespace weir {
namespace {

std::string Field(const char* name, double value) {
  return absl::StrFormat(",\"%s\":%.9g", name, value);
}

std::string Seconds(const char* name, uint64_t ns) {
  return Field(name, static_cast<double>(ns) * 1e-9);
}

}  // namespace

void PhaseTotals::Add(const Phases& phases) {
  AddPhaseTimes(phases, &sum_);
  // The share of a GPU counts the workers on GPUs alone: a worker without one
  // would only dilute it.
  if (!phases.on_gpu()) {
    return;
  }
  gpu_step_ns_ += phases.step_ns();
  gpu_busy_ns_ += phases.compute_ns();
  sum_.set_device_bytes_used(
      std::max(sum_.device_bytes_used(), phases.device_bytes_used()));
  sum_.set_device_bytes_reserved(
      std::max(sum_.device_bytes_reserved(), phases.device_bytes_reserved()));
  sum_.set_device_bytes_total(
      std::max(sum_.device_bytes_total(), phases.device_bytes_total()));
  // Most heartbeats carry no reading, since NVML has a new one once a second.
  // Both zero: no reading, or an idle device without a power sensor.
  if (phases.nvml_gpu_percent() > 0.0 || phases.nvml_watts() > 0.0) {
    ++readings_;
    sum_.set_nvml_gpu_percent(sum_.nvml_gpu_percent() +
                              phases.nvml_gpu_percent());
    sum_.set_nvml_watts(sum_.nvml_watts() + phases.nvml_watts());
  }
}

std::string PhaseTotals::Json() const {
  if (sum_.contributions() == 0) {
    return "";
  }
  std::string json =
      absl::StrCat("{\"contributions\":", sum_.contributions(),
                   Seconds("step_seconds", sum_.step_ns()),
                   Seconds("data_wait_seconds", sum_.data_wait_ns()),
                   Seconds("pull_wait_seconds", sum_.pull_wait_ns()),
                   Seconds("compute_seconds", sum_.compute_ns()),
                   Seconds("push_wait_seconds", sum_.push_wait_ns()));
  if (gpu_step_ns_ > 0) {
    absl::StrAppend(
        &json,
        Field("gpu_busy_share", static_cast<double>(gpu_busy_ns_) /
                                    static_cast<double>(gpu_step_ns_)),
        ",\"device_bytes_used\":", sum_.device_bytes_used(),
        ",\"device_bytes_reserved\":", sum_.device_bytes_reserved());
  }
  if (sum_.device_bytes_total() > 0) {
    absl::StrAppend(&json,
                    ",\"device_bytes_total\":", sum_.device_bytes_total());
  }
  if (readings_ > 0) {
    const double readings = static_cast<double>(readings_);
    absl::StrAppend(
        &json, Field("nvml_gpu_percent", sum_.nvml_gpu_percent() / readings));
    if (sum_.nvml_watts() > 0.0) {
      absl::StrAppend(&json, Field("nvml_watts", sum_.nvml_watts() / readings));
    }
  }
  return json + "}";
}

}  // namespace weir
