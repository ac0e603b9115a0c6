// A GPU's training step, its copies and its memory, and whole jobs on it.
//
//   weir bench gpu [--peers]   a step, compute alone; PyTorch's beside it
//   weir bench gpu --copies    copies of pinned memory
//   weir bench gpu --overlap   a timeline: how much of its copies a step hides
//   weir bench gpu --memory    device memory over 2,000 steps
//   weir bench gpu --job       jobs with 1 ps and 1 worker: async and sync
//
// Each takes --model mlp|convnet|alexnet|all and --precision
// fp32|tf32|bf16|all. The default is all for a step, and alexnet in fp32 for
// the others. A step is timed by the host's clock from the call to its return,
// when all gradients are final. PyTorch's step is timed in the same way, with a
// synchronisation at its end.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fstream>

#include "bench/gpu/gpu_job.h"
#include "bench/gpu/gpu_models.h"
#include "bench/gpu/gpu_modes.h"
#include "bench/support/bench_main.h"
#include "common/base/status.h"

namespace weir {
namespace {

struct Mode {
  const char* flag;
  const char* help;
  absl::StatusOr<nlohmann::json> (*measure)(const GpuFlags& flags);
  bool chosen = false;
};

absl::Status Run(const GpuFlags& flags, const std::vector<Mode>& modes,
                 const std::string& json_path) {
  auto* measure = &MeasureSteps;
  for (const Mode& mode : modes) {
    measure = mode.chosen ? mode.measure : measure;
  }
  WEIR_ASSIGN_OR_RETURN(const nlohmann::json results, measure(flags));
  if (!json_path.empty()) {
    std::ofstream file(json_path);
    file << results.dump(2) << "\n";
    if (!file.flush()) {
      return absl::UnavailableError("cannot write " + json_path);
    }
  }
  return absl::OkStatus();
}

// Returns what `name` stands for. An empty name stands for `one` where a mode
// was chosen, and for all where none was.
std::vector<std::string> Chosen(std::string name,
                                const std::vector<Mode>& modes,
                                const std::string& one,
                                const std::vector<std::string>& all) {
  for (const Mode& mode : modes) {
    if (name.empty() && mode.chosen) {
      name = one;
    }
  }
  return name.empty() || name == "all" ? all : std::vector<std::string>{name};
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::GpuFlags flags;
  // One thread so far.
  if (const char* root = std::getenv("WEIR_ROOT")) {  // NOLINT
    flags.root = root;
  }
  if (const char* bin_dir = std::getenv("WEIR_BIN_DIR")) {  // NOLINT
    flags.bin_dir = bin_dir;
  }
  std::vector<weir::Mode> modes = {
      {"--copies", "copies of pinned memory", &weir::MeasureCopies},
      {"--overlap", "what a step hides of its copies", &weir::MeasureOverlap},
      {"--memory", "device memory over many steps", &weir::MeasureMemory},
      {"--job", "jobs with one ps and one worker", &weir::MeasureJobs}};
  const std::vector<std::string> precisions = {"fp32", "tf32", "bf16"};
  std::string model;
  std::string precision;
  std::string json;
  CLI::App app("A GPU's training step, its copies and its memory");
  auto* group = app.add_option_group("mode", "one; without: a step");
  for (weir::Mode& mode : modes) {
    group->add_flag(mode.flag, mode.chosen, mode.help);
  }
  group->require_option(0, 1);
  std::vector<std::string> models = weir::GpuModelNames();
  models.emplace_back("all");
  app.add_option("--model", model, "default all of a step, else alexnet")
      ->check(CLI::IsMember(models));
  app.add_option("--precision", precision, "default all of a step, else fp32")
      ->check(CLI::IsMember({"fp32", "tf32", "bf16", "all"}));
  app.add_option("--batch", flags.batch, "default the model's")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--steps", flags.steps, "default the mode's")
      ->check(CLI::Range(2, 1 << 30));
  app.add_option("--device", flags.device, "cuda, cuda:N or cpu")
      ->capture_default_str();
  app.add_option("--device_plugin", flags.device_plugin,
                 "file of the GPU's plug-in; default beside the programs");
  app.add_option("--channels_per_peer", flags.channels, "of --job");
  app.add_flag("--peers", flags.peers, "PyTorch, too");
  app.add_option("--python", flags.python, "for --peers; has PyTorch")
      ->capture_default_str();
  app.add_option("--json", json, "write the results here too");
  return weir::BenchMain(&app, argc, argv, [&] {
    flags.models = weir::Chosen(model, modes, "alexnet", weir::GpuModelNames());
    flags.precisions = weir::Chosen(precision, modes, "fp32", precisions);
    return weir::Run(flags, modes, json);
  });
}
