#include "worker/compute/nvml.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"

namespace weir {
namespace {

// NVML's types, as its guide has them. The header is not included, so that
// Weir builds where it is not installed.
using Device = struct OpaqueDevice*;
struct Utilization {
  unsigned int gpu;
  unsigned int memory;
};
struct Memory {
  unsigned long long total;  // NOLINT(google-runtime-int): NVML's ABI
  unsigned long long free;   // NOLINT(google-runtime-int)
  unsigned long long used;   // NOLINT(google-runtime-int)
};
constexpr int kSuccess = 0;
constexpr int kTemperatureGpu = 0;
constexpr int kClockSm = 1;
// NVML's guide asks for 96 bytes for a name and 80 for a version.
constexpr unsigned int kTextBytes = 128;

// Calls a function that an old library may lack. False where it does lack it or
// NVML refuses: the figure then keeps its 0, as the header promises.
template <typename Function, typename... Arguments>
bool Get(Function function, Arguments... arguments) {
  return function != nullptr && function(arguments...) == kSuccess;
}

}  // namespace

struct Nvml::Functions {
  explicit Functions(SharedLibrary* library) {
    library->Find("nvmlInit_v2", &init);
    library->Find("nvmlShutdown", &shutdown);
    library->Find("nvmlErrorString", &error_string);
    library->Find("nvmlDeviceGetHandleByIndex_v2", &by_index);
    library->Find("nvmlDeviceGetHandleByPciBusId_v2", &by_bus_id);
    library->Find("nvmlDeviceGetName", &name);
    library->Find("nvmlDeviceGetUtilizationRates", &utilization);
    library->Find("nvmlDeviceGetMemoryInfo", &memory);
    library->Find("nvmlDeviceGetPowerUsage", &power);
    library->Find("nvmlDeviceGetTemperature", &temperature);
    library->Find("nvmlDeviceGetClockInfo", &clock);
    library->Find("nvmlSystemGetDriverVersion", &driver_version);
  }

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*by_index)(unsigned int, Device*) = nullptr;
  int (*by_bus_id)(const char*, Device*) = nullptr;
  int (*name)(Device, char*, unsigned int) = nullptr;
  int (*utilization)(Device, Utilization*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*power)(Device, unsigned int*) = nullptr;             // mW
  int (*temperature)(Device, int, unsigned int*) = nullptr;  // C
  int (*clock)(Device, int, unsigned int*) = nullptr;        // MHz
  int (*driver_version)(char*, unsigned int) = nullptr;
};

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& library) {
  absl::StatusOr<SharedLibrary> opened = SharedLibrary::Open(library);
  WEIR_RETURN_IF_ERROR(Annotate(opened.status(), "NVML"));
  auto functions = std::make_unique<Functions>(&*opened);
  // Everything else may be missing; a library without this one is not NVML.
  if (functions->init == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("NVML: ", library, " has no nvmlInit_v2"));
  }
  const int code = functions->init();
  if (code != kSuccess) {
    // `closed` must not shut down what was never initialised.
    functions->shutdown = nullptr;
    const Nvml closed(*std::move(opened), std::move(functions));
    return absl::UnavailableError(
        absl::StrCat("NVML: ", library, ": ", closed.Reason(code)));
  }
  return std::unique_ptr<Nvml>(
      new Nvml(*std::move(opened), std::move(functions)));
}

Nvml::Nvml(SharedLibrary library, std::unique_ptr<Functions> functions)
    : library_(std::move(library)), functions_(std::move(functions)) {}

Nvml::~Nvml() {
  if (functions_->shutdown != nullptr) {
    functions_->shutdown();
  }
}

std::string Nvml::Reason(int code) const {
  if (functions_->error_string != nullptr) {
    const char* const text = functions_->error_string(code);
    if (text != nullptr) {
      return text;
    }
  }
  return absl::StrCat("error ", code);
}

absl::StatusOr<Nvml::Figures> Nvml::Read(const std::string& device) const {
  const Functions& nvml = *functions_;
  Device handle = nullptr;
  uint32_t index = 0;
  int code = -1;
  bool asked = false;
  // A PCI bus id has colons and never reads as a number.
  if (absl::SimpleAtoi(device, &index)) {
    if ((asked = nvml.by_index != nullptr)) {
      code = nvml.by_index(index, &handle);
    }
  } else if ((asked = nvml.by_bus_id != nullptr)) {
    code = nvml.by_bus_id(device.c_str(), &handle);
  }
  if (code != kSuccess) {
    // Where nobody was asked, `code` is ours and NVML has no words for it.
    std::string why = "the library cannot look it up";
    if (asked) {
      why = Reason(code);
    }
    return absl::NotFoundError(absl::StrCat("NVML: GPU '", device, "': ", why));
  }
  Figures figures;
  // One byte less is offered than there is, so that the text always ends.
  char text[kTextBytes] = {};
  if (Get(nvml.name, handle, text, kTextBytes - 1)) {
    figures.name = text;
  }
  if (Get(nvml.driver_version, text, kTextBytes - 1)) {
    figures.driver_version = text;
  }
  if (Utilization rates = {}; Get(nvml.utilization, handle, &rates)) {
    figures.gpu_utilization_percent = rates.gpu;
  }
  if (Memory memory = {}; Get(nvml.memory, handle, &memory)) {
    figures.bytes_used = memory.used;
    figures.bytes_total = memory.total;
  }
  unsigned int value = 0;
  if (Get(nvml.power, handle, &value)) {
    figures.power_watts = value * 1e-3;
  }
  if (Get(nvml.temperature, handle, kTemperatureGpu, &value)) {
    figures.temperature_celsius = value;
  }
  if (Get(nvml.clock, handle, kClockSm, &value)) {
    figures.sm_clock_mhz = value;
  }
  return figures;
}

std::string Nvml::Figures::Text() const {
  std::string text = name.empty() ? "a GPU" : name;
  absl::StrAppendFormat(&text, ", %.0f%% busy", gpu_utilization_percent);
  // A zero stands for a figure that the device does not have, and is left out.
  if (bytes_total > 0) {
    absl::StrAppendFormat(&text, ", %.1f of %.0f GiB used",
                          static_cast<double>(bytes_used) / (1 << 30),
                          static_cast<double>(bytes_total) / (1 << 30));
  }
  if (power_watts > 0.0) {
    absl::StrAppendFormat(&text, ", %.0f W", power_watts);
  }
  if (temperature_celsius > 0.0) {
    absl::StrAppendFormat(&text, ", %.0f C", temperature_celsius);
  }
  if (sm_clock_mhz > 0) {
    absl::StrAppendFormat(&text, ", SM at %d MHz", sm_clock_mhz);
  }
  if (!driver_version.empty()) {
    absl::StrAppend(&text, ", driver ", driver_version);
  }
  return text;
}

}  // namespace weir
