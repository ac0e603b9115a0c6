#include "bench/gpu/gpu_modes.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/gpu/gpu_models.h"
#include "bench/support/peers.h"
#include "bench/support/timing.h"
#include "common/base/status.h"

namespace weir {
namespace {

using Json = nlohmann::json;

constexpr int kWarmUpSteps = 10;
constexpr int64_t kMiB = int64_t{1} << 20;

BackendOptions BackendOf(const GpuFlags& flags, const std::string& precision) {
  BackendOptions options;
  options.device = flags.device;
  options.precision = PrecisionOf(precision);
  options.plugin_path = flags.device_plugin;
  return options;
}

absl::StatusOr<GpuModel> ModelOf(const GpuFlags& flags,
                                 const std::string& name) {
  WEIR_ASSIGN_OR_RETURN(GpuModel model, MakeGpuModel(name));
  model.batch = flags.batch > 0 ? flags.batch : model.batch;
  return model;
}

absl::Status NeedsOwnMemory(const Backend& backend) {
  return backend.shares_host_memory()
             ? absl::FailedPreconditionError(
                   absl::StrCat(backend.name(),
                                " has no memory of its own: nothing is "
                                "copied; use --device cuda"))
             : absl::OkStatus();
}

// Seconds of every step, after a warm-up.
absl::StatusOr<std::vector<double>> TimeSteps(GpuStepper* stepper,
                                              int64_t steps,
                                              const StepHooks& hooks = {}) {
  std::vector<double> times;
  for (int64_t i = 0; i < kWarmUpSteps + steps; ++i) {
    const double begin = Now();
    WEIR_RETURN_IF_ERROR(stepper->Step(hooks));
    if (i >= kWarmUpSteps) {
      times.push_back(Now() - begin);
    }
  }
  return times;
}

double Percentile(std::vector<double> values, size_t percent) {
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) * percent / 100];
}

// Runs torch_gpu.py with the flags that every mode gives it, then `what`.
absl::StatusOr<Json> AskTorch(const GpuFlags& flags, const std::string& what) {
  const std::string command =
      absl::StrCat(flags.python, " '", flags.root, "/bench/gpu/torch_gpu.py' ",
                   flags.device == "cpu" ? "--device cpu " : "", what);
  Json json = JsonOutputOf(command + " 2>/dev/null");
  if (!json.is_object()) {
    return absl::UnavailableError(
        "--peers: PyTorch gives nothing; run this to see why: " + command);
  }
  if (json.contains("error")) {
    return absl::UnavailableError("--peers: " +
                                  json["error"].get<std::string>());
  }
  return json;
}

// ------------------------------------------------------------------- steps

absl::StatusOr<Json> MeasureOneStep(const GpuFlags& flags,
                                    const std::string& name,
                                    const std::string& precision) {
  WEIR_ASSIGN_OR_RETURN(const GpuModel model, ModelOf(flags, name));
  const int64_t steps = flags.steps > 0 ? flags.steps : 100;
  Json json = {{"model", name},
               {"precision", precision},
               {"batch", model.batch},
               {"steps", steps}};
  {  // PyTorch gets the device for itself
    WEIR_ASSIGN_OR_RETURN(
        const auto stepper,
        GpuStepper::Create(model, BackendOf(flags, precision), false));
    WEIR_ASSIGN_OR_RETURN(const std::vector<double> times,
                          TimeSteps(stepper.get(), steps));
    json["device"] = stepper->backend()->name();
    json["step_ms"] = 1e3 * Median(times);
    json["p10_ms"] = 1e3 * Percentile(times, 10);
    json["p90_ms"] = 1e3 * Percentile(times, 90);
  }
  if (flags.peers) {
    absl::StatusOr<Json> torch = AskTorch(
        flags, absl::StrCat("--model ", name, " --precision ", precision,
                            " --batch ", model.batch, " --steps ", steps));
    if (torch.ok()) {
      json["torch"] = *std::move(torch);
    } else {  // ours still counts
      json["torch_error"] = std::string(torch.status().message());
    }
  }
  return json;
}

void PrintStep(const Json& json) {
  std::printf("%-8s %-4s %6d %9.3f  %9.3f to %.3f",
              json["model"].get<std::string>().c_str(),
              json["precision"].get<std::string>().c_str(),
              json["batch"].get<int>(), json["step_ms"].get<double>(),
              json["p10_ms"].get<double>(), json["p90_ms"].get<double>());
  if (json.contains("torch")) {
    const Json& torch = json["torch"];
    const double best = torch["best_ms"].get<double>();
    std::printf("  %9.3f %9.3f  %5.2f  %s", torch["eager_ms"].get<double>(),
                best, json["step_ms"].get<double>() / best,
                torch["best"].get<std::string>().c_str());
  } else if (json.contains("torch_error")) {
    std::printf("  %s", json["torch_error"].get<std::string>().c_str());
  }
  std::printf("\n");
  std::fflush(stdout);
}

// ------------------------------------------------------------------ copies

// Host memory and its mirror.
struct Mirror {
  std::vector<float> host;
  float* device = nullptr;
};

class CopyBench {
 public:
  explicit CopyBench(std::unique_ptr<Backend> backend)
      : backend_(std::move(backend)) {}

  // GB/s of copies of `bytes`: to the device, back, and both ways together.
  absl::StatusOr<Json> Measure(int64_t bytes) {
    const int64_t elements = bytes / static_cast<int64_t>(sizeof(float));
    Mirror up;
    Mirror down;
    for (Mirror* mirror : {&up, &down}) {
      mirror->host.assign(elements, 1.0f);
      WEIR_ASSIGN_OR_RETURN(
          mirror->device, backend_->MirrorHost(mirror->host.data(), elements));
    }
    WEIR_ASSIGN_OR_RETURN(ticks_, backend_->Allocate(1));
    const auto upload = [&] {
      backend_->Upload(up.device, up.host.data(), elements);
    };
    const auto download = [&] {
      backend_->Download(down.host.data(), down.device, elements);
    };
    // Something to copy back.
    backend_->Upload(down.device, down.host.data(), elements);
    const auto rate = [&](int64_t bytes_each, const auto& copy) {
      return Rate(bytes_each, copy);
    };
    Json json = {{"mib", bytes / kMiB}};
    json["up_gbs"] = rate(bytes, upload);
    json["down_gbs"] = rate(bytes, download);
    json["both_gbs"] = rate(2 * bytes, [&] {
      upload();
      download();
    });
    for (float* device : {up.device, down.device, ticks_}) {
      backend_->Release(device);
    }
    WEIR_RETURN_IF_ERROR(backend_->TakeStatus());
    return json;
  }

 private:
  static constexpr int64_t kBytesEach = 960 * kMiB;  // copied in one timing
  static constexpr int kTimings = 5;

  // Times as many copies as make up kBytesEach, one behind the other. Returns
  // the median.
  template <typename Copy>
  double Rate(int64_t bytes, const Copy& copy) {
    const int64_t count = std::max<int64_t>(1, kBytesEach / bytes);
    std::vector<double> times;
    for (int i = 0; i <= kTimings; ++i) {
      Drain();
      const double begin = Now();
      for (int64_t c = 0; c < count; ++c) {
        copy();
      }
      Drain();
      times.push_back(Now() - begin);
    }
    times.erase(times.begin());  // warm-up
    return 1e-9 * static_cast<double>(bytes * count) / Median(times);
  }

  // The operation is behind all uploads, the mark behind it and all downloads.
  void Drain() {
    backend_->Run(op::Add{1, ticks_, ticks_, ticks_});
    backend_->Wait(backend_->Mark());
  }

  const std::unique_ptr<Backend> backend_;
  float* ticks_ = nullptr;
};

// ----------------------------------------------------------------- overlap

struct Moment {
  double sent_ms = 0;
  double back_ms = 0;
};

// The moments of one step, by variable.
absl::StatusOr<std::vector<Moment>> Timeline(GpuStepper* stepper) {
  std::vector<Moment> moments(stepper->network().variables().size());
  const double begin = Now();
  StepHooks hooks;
  hooks.before_layer_parameters = [&](int variable) {
    moments[variable].sent_ms = 1e3 * (Now() - begin);
    return absl::OkStatus();
  };
  hooks.gradient_ready = [&](int variable) {
    moments[variable].back_ms = 1e3 * (Now() - begin);
    return absl::OkStatus();
  };
  WEIR_RETURN_IF_ERROR(stepper->Step(hooks));
  return moments;
}

// Median milliseconds of a step; the hooks are those of a worker.
absl::StatusOr<double> StepMs(GpuStepper* stepper, int64_t steps) {
  StepHooks hooks;
  hooks.before_layer_parameters = [](int) { return absl::OkStatus(); };
  hooks.gradient_ready = [](int) { return absl::OkStatus(); };
  WEIR_ASSIGN_OR_RETURN(const auto times, TimeSteps(stepper, steps, hooks));
  return 1e3 * Median(times);
}

int64_t BytesOf(const VariableSpec& variable) {
  return variable.elements() * static_cast<int64_t>(sizeof(float));
}

Json TimelineJson(const Network& network, const std::vector<Moment>& moments) {
  Json lines = Json::array();
  for (size_t v = 0; v < moments.size(); ++v) {
    const VariableSpec& variable = network.variables()[v];
    const double mib = static_cast<double>(BytesOf(variable)) / kMiB;
    std::printf("  %-16s %8.2f MiB  sent from %8.3f ms  gradient back %8.3f\n",
                variable.name.c_str(), mib, moments[v].sent_ms,
                moments[v].back_ms);
    lines.push_back({{"variable", variable.name},
                     {"mib", mib},
                     {"sent_ms", moments[v].sent_ms},
                     {"back_ms", moments[v].back_ms}});
  }
  return lines;
}

absl::StatusOr<Json> MeasureOneOverlap(const GpuFlags& flags,
                                       const std::string& name,
                                       const std::string& precision) {
  WEIR_ASSIGN_OR_RETURN(const GpuModel model, ModelOf(flags, name));
  const int64_t steps = flags.steps > 0 ? flags.steps : 50;
  const BackendOptions options = BackendOf(flags, precision);
  Json json = {{"model", name}, {"precision", precision}};
  {
    WEIR_ASSIGN_OR_RETURN(const auto alone,
                          GpuStepper::Create(model, options, false));
    WEIR_RETURN_IF_ERROR(NeedsOwnMemory(*alone->backend()));
    WEIR_ASSIGN_OR_RETURN(json["compute_ms"], StepMs(alone.get(), steps));
  }
  WEIR_ASSIGN_OR_RETURN(const auto stepper,
                        GpuStepper::Create(model, options, true));
  WEIR_ASSIGN_OR_RETURN(json["step_ms"], StepMs(stepper.get(), steps));
  WEIR_ASSIGN_OR_RETURN(const auto moments, Timeline(stepper.get()));
  // The batch goes up, too.
  int64_t up = model.batch * stepper->network().feature_elements() *
               static_cast<int64_t>(sizeof(float));
  int64_t down = 0;
  for (const VariableSpec& variable : stepper->network().variables()) {
    up += BytesOf(variable);
    down += BytesOf(variable);
  }
  WEIR_ASSIGN_OR_RETURN(auto backend, CreateBackend(options));
  CopyBench copies(std::move(backend));
  WEIR_ASSIGN_OR_RETURN(const Json rates, copies.Measure(64 * kMiB));
  json["up_ms"] =
      1e-6 * static_cast<double>(up) / rates["up_gbs"].get<double>();
  json["down_ms"] =
      1e-6 * static_cast<double>(down) / rates["down_gbs"].get<double>();
  json["exposed_ms"] =
      json["step_ms"].get<double>() - json["compute_ms"].get<double>();
  std::printf(
      "%s %s: step %.3f ms; compute alone %.3f, so %.3f of the copies is not "
      "hidden; they take %.1f MiB up %.3f ms, %.1f MiB down %.3f ms\n",
      name.c_str(), precision.c_str(), json["step_ms"].get<double>(),
      json["compute_ms"].get<double>(), json["exposed_ms"].get<double>(),
      static_cast<double>(up) / kMiB, json["up_ms"].get<double>(),
      static_cast<double>(down) / kMiB, json["down_ms"].get<double>());
  json["timeline"] = TimelineJson(stepper->network(), moments);
  return json;
}

// ------------------------------------------------------------------ memory

// Waits until the backend looks at the device again.
DeviceUsage FreshUsage(Backend* backend) {
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  return backend->Usage();
}

absl::StatusOr<Json> MeasureOneMemory(const GpuFlags& flags,
                                      const std::string& name,
                                      const std::string& precision) {
  WEIR_ASSIGN_OR_RETURN(const GpuModel model, ModelOf(flags, name));
  const int64_t steps = flags.steps > 0 ? flags.steps : 2000;
  WEIR_ASSIGN_OR_RETURN(
      const auto stepper,
      GpuStepper::Create(model, BackendOf(flags, precision), true));
  WEIR_RETURN_IF_ERROR(NeedsOwnMemory(*stepper->backend()));
  StepHooks hooks;
  hooks.before_layer_parameters = [](int) { return absl::OkStatus(); };
  std::optional<DeviceUsage> first, second;
  Json json = {
      {"model", name}, {"precision", precision}, {"bytes", Json::array()}};
  for (int64_t step = 1; step <= steps; ++step) {
    WEIR_RETURN_IF_ERROR(stepper->Step(hooks));
    if (step != 1 && step != 2 && step != 100 && step != steps) {
      continue;
    }
    const DeviceUsage usage = FreshUsage(stepper->backend());
    absl::PrintF("%-8s %-4s step %5d: used %d bytes, of the device %d\n", name,
                 precision, step, usage.bytes_used, usage.bytes_reserved);
    std::fflush(stdout);
    json["bytes"].push_back({{"step", step},
                             {"used", usage.bytes_used},
                             {"reserved", usage.bytes_reserved}});
    first = first.has_value() ? first : usage;
    second = step == 2 ? usage : second;
    if (usage.bytes_used > first->bytes_used ||
        (step > 2 && usage.bytes_reserved > second->bytes_reserved)) {
      return absl::InternalError(absl::StrCat(
          name, " in ", precision, ": device memory grew until step ", step,
          ": used ", first->bytes_used, " to ", usage.bytes_used,
          " bytes, of the device ", second->bytes_reserved, " to ",
          usage.bytes_reserved, " (by any process: run it alone)"));
    }
  }
  return json;
}

// `measure` for every model and precision that was chosen.
template <typename MeasureOne>
absl::StatusOr<Json> ForEach(const GpuFlags& flags, const MeasureOne& measure) {
  Json results = Json::array();
  for (const std::string& model : flags.models) {
    for (const std::string& precision : flags.precisions) {
      WEIR_ASSIGN_OR_RETURN(Json json, measure(flags, model, precision));
      results.push_back(std::move(json));
    }
  }
  return results;
}

}  // namespace

absl::StatusOr<Json> MeasureSteps(const GpuFlags& flags) {
  std::printf("%-8s %-4s %6s %9s  %9s", "model", "", "batch", "step, ms",
              "10% to 90%");
  std::printf(flags.peers ? "       %9s %9s  %5s\n" : "\n", "eager", "PyTorch",
              "ratio");
  return ForEach(flags,
                 [](const auto& chosen, const auto& model,
                    const auto& precision) -> absl::StatusOr<Json> {
                   WEIR_ASSIGN_OR_RETURN(
                       Json json, MeasureOneStep(chosen, model, precision));
                   PrintStep(json);
                   return json;
                 });
}

absl::StatusOr<Json> MeasureCopies(const GpuFlags& flags) {
  WEIR_ASSIGN_OR_RETURN(auto backend, CreateBackend(BackendOf(flags, "fp32")));
  WEIR_RETURN_IF_ERROR(NeedsOwnMemory(*backend));
  CopyBench copies(std::move(backend));
  Json json = {{"copies", Json::array()}};
  double up = 0;  // the link's
  double down = 0;
  for (const int64_t mib : {1, 16, 64, 240}) {
    absl::StatusOr<Json> rates = copies.Measure(mib * kMiB);
    if (absl::IsResourceExhausted(rates.status())) {
      std::printf("%d MiB: %s\n", static_cast<int>(mib),
                  std::string(rates.status().message()).c_str());
      break;
    }
    WEIR_RETURN_IF_ERROR(rates.status());
    up = std::max(up, (*rates)["up_gbs"].get<double>());
    down = std::max(down, (*rates)["down_gbs"].get<double>());
    json["copies"].push_back(*std::move(rates));
  }
  if (flags.peers) {
    WEIR_ASSIGN_OR_RETURN(json["torch"], AskTorch(flags, "--copies"));
    up = std::max(up, json["torch"]["up_gbs"].get<double>());
    down = std::max(down, json["torch"]["down_gbs"].get<double>());
  }
  json["link_up_gbs"] = up;
  json["link_down_gbs"] = down;
  std::printf("link: %.1f GB/s to the device, %.1f GB/s back%s\n", up, down,
              flags.peers ? " (the best here and of PyTorch)" : "");
  std::printf("%8s %18s %18s %12s\n", "MiB", "up, GB/s (share)", "down (share)",
              "both ways");
  for (const Json& rates : json["copies"]) {
    const double up_here = rates["up_gbs"].get<double>();
    const double down_here = rates["down_gbs"].get<double>();
    std::printf("%8d %11.1f (%.2f) %11.1f (%.2f) %12.1f\n",
                rates["mib"].get<int>(), up_here, up_here / up, down_here,
                down_here / down, rates["both_gbs"].get<double>());
  }
  return json;
}

absl::StatusOr<Json> MeasureOverlap(const GpuFlags& flags) {
  return ForEach(flags, &MeasureOneOverlap);
}

absl::StatusOr<Json> MeasureMemory(const GpuFlags& flags) {
  return ForEach(flags, &MeasureOneMemory);
}

}  // namespace weir
