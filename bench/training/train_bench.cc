// MNIST trained by Weir, and beside it by PyTorch: examples/s and accuracy.
//
//   weir bench train --data_dir DIR [--epochs 1] [--peers] [--json FILE]
//
// One ps and two workers, one thread per process, batch 64 per worker, async
// and sync, through shared memory and over gRPC. --peers: torch_train.py does
// the same with PyTorch's RPC parameter-server pattern, DDP over gloo and one
// plain process. Weir's examples/s are the chief's, from the first step to the
// last.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/support/bench_main.h"
#include "bench/support/peers.h"
#include "bench/support/timing.h"
#include "common/base/status.h"
#include "nlohmann/json.hpp"

namespace weir {
namespace {

struct Flags {
  std::string root = ".";
  std::string bin_dir = "bin";
  std::string data_dir;
  std::string json;
  std::string models = "mlp,convnet";
  int epochs = 1;
  bool peers = false;
};

struct Result {
  std::string model;
  std::string how;
  double examples_per_second = 0;
  double accuracy = 0;
};

absl::StatusOr<Result> TrainWeir(const Flags& flags, const std::string& model,
                                 const std::string& mode,
                                 const std::string& transport) {
  const std::string workdir = "/tmp/weir_train_bench";
  std::error_code ignored;
  std::filesystem::remove_all(workdir, ignored);
  std::vector<std::string> argv = {
      flags.bin_dir + "/deploy/cli/weir_cli", "train",
      absl::StrCat(flags.root, "/examples/mnist_", model, ".textproto"),
      "--data_dir", flags.data_dir, "--ps", "1", "--workers", "2", "--workdir",
      workdir, "--transport", transport, "--set",
      absl::StrCat("train.epochs=", flags.epochs), "--set", "compute.threads=1",
      "--set",
      // The evaluator runs at the end alone: it would take a core.
      "checkpoint.every_steps=1000000"};
  if (mode == "sync") {
    argv.insert(argv.end(), {"--set", "update.sync.contributions=2"});
  }
  WEIR_ASSIGN_OR_RETURN(const auto child,
                        Child::Start(argv, "/tmp/weir_train_bench.log"));
  child->Wait();
  std::ifstream file(workdir + "/summary.json");
  const nlohmann::json summary = nlohmann::json::parse(file, nullptr, false);
  if (!summary.is_object() || summary.value("status", "") != "done") {
    return absl::UnavailableError(absl::StrCat(
        model, ", ", mode, " did not train; see /tmp/weir_train_bench.log"));
  }
  return Result{model, absl::StrCat("weir ", mode, " ", transport),
                summary["examples_per_second"].get<double>(),
                summary["final_metrics"].value("accuracy", 0.0)};
}

absl::StatusOr<Result> TrainTorch(const Flags& flags, const std::string& model,
                                  const std::string& how) {
  const nlohmann::json json = JsonOutputOf(
      absl::StrCat("/usr/bin/python3 '", flags.root,
                   "/bench/training/torch_train.py' --model ", model, " --how ",
                   how, " --epochs ", flags.epochs, " --data_dir '",
                   flags.data_dir, "' 2>/dev/null"));
  if (!json.is_object() || !json.contains("examples_per_second")) {
    return absl::UnavailableError(
        "--peers: bench/training/torch_train.py gives nothing; install "
        "Debian's python3-torch and libopenblas0, and run it by hand to see "
        "why");
  }
  return Result{model, "torch " + how,
                json["examples_per_second"].get<double>(),
                json["accuracy"].get<double>()};
}

void Print(const Result& result) {
  std::printf("%-8s %-16s %10.0f examples/s  accuracy %.4f\n",
              result.model.c_str(), result.how.c_str(),
              result.examples_per_second, result.accuracy);
  std::fflush(stdout);
}

absl::Status Run(const Flags& flags) {
  nlohmann::json results = nlohmann::json::array();
  const auto note = [&results](const Result& result) {
    Print(result);
    results.push_back({{"model", result.model},
                       {"how", result.how},
                       {"examples_per_second", result.examples_per_second},
                       {"accuracy", result.accuracy}});
  };
  for (const std::string model : {"mlp", "convnet"}) {
    if (flags.models.find(model) == std::string::npos) {
      continue;
    }
    for (const std::string mode : {"async", "sync"}) {
      for (const std::string transport : {"shm", "grpc"}) {
        WEIR_ASSIGN_OR_RETURN(const Result result,
                              TrainWeir(flags, model, mode, transport));
        note(result);
      }
    }
    for (const std::string how : {"rpc", "ddp", "alone"}) {
      if (flags.peers) {
        WEIR_ASSIGN_OR_RETURN(const Result result,
                              TrainTorch(flags, model, how));
        note(result);
      }
    }
  }
  if (!flags.json.empty()) {
    std::ofstream file(flags.json);
    file << results.dump(2) << "\n";
    if (!file.flush()) {
      return absl::UnavailableError("cannot write " + flags.json);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::Flags flags;
  // One thread so far.
  if (const char* root = std::getenv("WEIR_ROOT")) {  // NOLINT
    flags.root = root;
  }
  if (const char* bin_dir = std::getenv("WEIR_BIN_DIR")) {  // NOLINT
    flags.bin_dir = bin_dir;
  }
  CLI::App app("MNIST, with one ps and two workers");
  app.add_option("--data_dir", flags.data_dir, "holds MNIST's four files")
      ->required();
  app.add_option("--epochs", flags.epochs, "")->capture_default_str();
  app.add_option("--models", flags.models, "mlp, convnet or both")
      ->capture_default_str();
  app.add_flag("--peers", flags.peers,
               "PyTorch, too (Debian's python3-torch and libopenblas0)");
  app.add_option("--json", flags.json, "write the results here too");
  return weir::BenchMain(&app, argc, argv, [&] { return weir::Run(flags); });
}
