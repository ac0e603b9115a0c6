// weir gpu-check: checks every operation of a compute device against the
// reference.
//
//   weir gpu-check [--device cuda:0] [--precision all|fp32|tf32|bf16]
//                  [--cudnn on|off] [--seed N] [--small]
//
// Only deterministic algorithms are used, since bits are compared, too. With
// --cudnn off it checks Weir's own convolutions, which machines without cuDNN
// use, and which bf16 uses everywhere.
//
// Exits with 0, 1 when an operation is wrong, 3 when there is no such device.
#include <cstdio>
#include <memory>
#include <random>

#include "absl/strings/str_format.h"
#include "common/base/exit_code.h"
#include "deploy/cli/check_table.h"
#include "deploy/cli/command.h"
#include "worker/compute/check/operation_checks.h"
#include "worker/compute/factory.h"

namespace weir {
namespace {

struct NamedPrecision {
  const char* name;
  Precision precision;
};
constexpr NamedPrecision kPrecisions[] = {{"fp32", Precision::kFp32},
                                          {"tf32", Precision::kTf32},
                                          {"bf16", Precision::kBf16}};

struct Options {
  std::string device = "cuda";
  std::string precision = "all";
  std::string cudnn = "on";
  uint64_t seed = std::random_device()();
  bool small = false;
};

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const Options& check,
                                                     Precision precision) {
  BackendOptions options;
  options.device = check.device;
  options.precision = precision;
  options.deterministic = true;
  if (check.cudnn == "off") {
    options.cudnn_library = "none";
  }
  return CreateBackend(options);
}

// Prints a line for each check as it ends, so that a device that dies leaves
// behind what was found.
void CheckAll(Backend* backend, const NamedPrecision& precision,
              const Options& options, int* passed, int* failed) {
  for (const OperationCheck& check : OperationChecks()) {
    const std::vector<CheckResult> results =
        RunCheck(check, backend,
                 {.precision = precision.precision,
                  .seed = options.seed,
                  .large = !options.small});
    if (AllOk(results)) {
      ++*passed;
    } else {
      ++*failed;
    }
    absl::PrintF("%s", CheckTableLine(results, precision.name, options.seed));
    std::fflush(stdout);
  }
}

absl::StatusOr<int> GpuCheck(const Options& options) {
  int passed = 0;
  int failed = 0;
  bool first = true;
  for (const NamedPrecision& precision : kPrecisions) {
    // The CPU has one precision.
    const bool chosen =
        options.precision == precision.name ||
        (options.precision == "all" &&
         (options.device != "cpu" || precision.precision == Precision::kFp32));
    if (!chosen) {
      continue;
    }
    const auto backend = MakeBackend(options, precision.precision);
    if (!backend.ok()) {
      absl::FPrintF(stderr, "weir: cannot use %s in %s: %s\n", options.device,
                    precision.name, backend.status().message());
      return kExitPermanent;
    }
    if (first) {
      absl::PrintF("device %s\nseed %d\n%s", (*backend)->name(), options.seed,
                   CheckTableHeader());
      first = false;
    }
    CheckAll(backend->get(), precision, options, &passed, &failed);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  if (failed > 0) {
    return kExitBug;
  }
  return kExitOk;
}

}  // namespace

void AddGpuCheckCommand(CLI::App* app, Command* command) {
  auto options = std::make_shared<Options>();
  CLI::App* check =
      AddSubcommand(app, "gpu-check",
                    "check every operation of a device against the reference",
                    options, GpuCheck, command);
  AddOption(check, "--device", &options->device, "cuda, cuda:N or cpu")
      .ShowDefault();
  AddOption(check, "--precision", &options->precision, "of products")
      .OneOf({"all", "fp32", "tf32", "bf16"})
      .ShowDefault();
  AddOption(check, "--cudnn", &options->cudnn, "convolve with it where it is")
      .OneOf({"on", "off"})
      .ShowDefault();
  AddOption(check, "--seed", &options->seed,
            "repeats a run; another one each time by default");
  AddFlag(check, "--small", &options->small, "leave out the large shapes");
}

}  // namespace weir
