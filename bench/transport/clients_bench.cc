// Many clients that push as fast as they can at one ps: its memory against the
// bound that it promises, and whether all of them get on alike.
//
//   weir bench clients [--json FILE] [--clients 16] [--seconds 60] [--mib 16]
//                      [--transport grpc,shm] [--in_flight_mib 2]
//
// Every client is a process with the client that workers have; a push is the
// whole model, with SGD applied in async mode, and the next one starts when its
// receipts are in. The resident memory of the ps is sampled ten times a second,
// its highest mark read at the end. The bound is the design's: values + state
// (SGD has none) + chunks in flight + 64 MiB. Over gRPC, chunks in flight are
// at most the 512 MiB of its resource quota; the 2 MiB that each client of ours
// can have under way are shown beside it. Through shared memory a push is read
// where the client has it: the kernel counts the clients' gradients that the ps
// has mapped as the ps's too, so they are part of that bound.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/support/bench_main.h"
#include "bench/support/cluster.h"
#include "bench/support/load.h"
#include "bench/support/timing.h"
#include "client/cc/parameters/shard_exchange.h"
#include "common/base/malloc_settings.h"
#include "common/base/status.h"
#include "deploy/launcher/child_process.h"
#include "nlohmann/json.hpp"

namespace weir {
namespace {

constexpr char kLogPath[] = "/tmp/weir_clients_bench.log";
constexpr double kFairTarget = 0.5;  // the slowest client, of the mean
constexpr double kProcessMib = 64;
constexpr double kQuotaMib = 512;  // PsServer::Options::wire_bytes_max

struct Flags {
  std::string json;
  int clients = 16;
  double seconds = 60;
  int64_t mib = 16;
  int64_t in_flight_mib = ShardExchange::kInFlightBytesMax >> 20;
  std::vector<std::string> transports = {"grpc", "shm"};
};

// A line "Name:   123 kB" of /proc/PID/status, in MiB.
double StatusMib(pid_t pid, const std::string& name) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind(name + ":", 0) == 0) {
      return std::stod(line.substr(name.size() + 1)) / 1024;
    }
  }
  return 0;
}

double Quantile(std::vector<double>* values, double q) {
  if (values->empty()) {
    return 0;
  }
  const auto at =
      static_cast<size_t>(q * static_cast<double>(values->size() - 1));
  std::nth_element(values->begin(),
                   values->begin() + static_cast<ptrdiff_t>(at), values->end());
  return (*values)[at];
}

absl::StatusOr<nlohmann::json> Measure(const Flags& flags,
                                       const std::string& transport) {
  const auto here = [](int, std::vector<std::string> argv) { return argv; };
  WEIR_ASSIGN_OR_RETURN(const int port, FreePort());
  LoadOptions options;
  options.addresses = {absl::StrCat("127.0.0.1:", port)};
  options.clients = flags.clients;
  options.bytes = flags.mib << 20;
  options.transport = transport;
  options.pull = false;
  options.in_flight_bytes = flags.in_flight_mib << 20;
  options.log_path = kLogPath;
  WEIR_ASSIGN_OR_RETURN(const auto ps,
                        StartPs(options.addresses, here, kLogPath));
  const pid_t pid = ps[0]->pid();
  WEIR_ASSIGN_OR_RETURN(const auto load, Load::Start(options, here));
  std::vector<double> resident;
  double shared = 0;
  double said = Now();
  WEIR_ASSIGN_OR_RETURN(
      std::vector<ClientResult> results, load->Run(flags.seconds, [&] {
        resident.push_back(StatusMib(pid, "VmRSS"));
        shared = std::max(shared, StatusMib(pid, "RssShmem"));
        if (Now() > said + 10) {
          said = Now();
          std::fprintf(stderr, "%s: %d clients, resident %.0f MiB\n",
                       transport.c_str(), flags.clients, resident.back());
        }
      }));
  const double highest = StatusMib(pid, "VmHWM");
  std::vector<double> latencies;
  double pushes = 0;
  double slowest = results[0].steps_per_s;
  for (const ClientResult& result : results) {
    latencies.insert(latencies.end(), result.step_s.begin(),
                     result.step_s.end());
    pushes += result.steps_per_s;
    slowest = std::min(slowest, result.steps_per_s);
  }
  const double mean = pushes / flags.clients;
  const double model = static_cast<double>(flags.mib);
  const double window = static_cast<double>(
      flags.clients * std::min(flags.in_flight_mib, flags.mib));
  const double in_flight =
      transport == "shm" ? model * flags.clients : std::min(window, kQuotaMib);
  const double bound = model + in_flight + kProcessMib;
  return nlohmann::json{
      {"transport", transport},
      {"clients", flags.clients},
      {"pushes_per_s", pushes},
      {"gb_per_s", pushes * static_cast<double>(options.bytes) * 1e-9},
      {"latency_p50_ms", 1e3 * Quantile(&latencies, 0.5)},
      {"latency_p99_ms", 1e3 * Quantile(&latencies, 0.99)},
      {"slowest_over_mean", slowest / mean},
      {"values_mib", model},
      {"resident_median_mib", Median(resident)},
      {"resident_max_mib", highest},
      {"resident_shared_mib", shared},
      {"bound_mib", bound}};
}

void Print(const nlohmann::json& row) {
  const auto number = [&row](const char* name) {
    return row[name].get<double>();
  };
  std::printf("%-5s %8.1f %6.2f %8.0f %8.0f %8.2f %9.0f %9.0f %9.0f %8.0f\n",
              row["transport"].get<std::string>().c_str(),
              number("pushes_per_s"), number("gb_per_s"),
              number("latency_p50_ms"), number("latency_p99_ms"),
              number("slowest_over_mean"), number("resident_median_mib"),
              number("resident_max_mib"), number("resident_shared_mib"),
              number("bound_mib"));
  std::fflush(stdout);
}

absl::Status Run(const Flags& flags) {
  nlohmann::json rows = nlohmann::json::array();
  for (const std::string& transport : flags.transports) {
    WEIR_ASSIGN_OR_RETURN(nlohmann::json row, Measure(flags, transport));
    rows.push_back(std::move(row));
  }
  std::printf("%d clients, %lld MiB a push, %.0f s\n", flags.clients,
              static_cast<long long>(flags.mib), flags.seconds);
  std::printf("%-5s %8s %6s %8s %8s %8s %9s %9s %9s %8s\n", "", "pushes", "GB",
              "p50", "p99", "slowest", "resident", "resident", "of it",
              "bound");
  std::printf("%-5s %8s %6s %8s %8s %8s %9s %9s %9s %8s\n", "", "/s", "/s",
              "ms", "ms", "/ mean", "median", "max MiB", "shared", "MiB");
  for (const nlohmann::json& row : rows) {
    Print(row);
  }
  std::printf(
      "targets: slowest / mean %.1f; resident max at most the bound\n"
      "bound: %lld values + what clients have under way, %lld each, up to "
      "gRPC's quota of %.0f;\n       shm: or their gradients, which the ps has "
      "mapped; + %.0f\n",
      kFairTarget, static_cast<long long>(flags.mib),
      static_cast<long long>(flags.in_flight_mib), kQuotaMib, kProcessMib);
  if (flags.json.empty()) {
    return absl::OkStatus();
  }
  return Say(flags.json, nlohmann::json{{"bench", "clients"},
                                        {"seconds", flags.seconds},
                                        {"push_mib", flags.mib},
                                        {"target_slowest", kFairTarget},
                                        {"rows", rows}}
                             .dump(2));
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::SetMallocForBulk();
  weir::Flags flags;
  weir::LoadOptions load;
  int client = -1;
  std::string directory;
  CLI::App app("Many clients at one ps: memory and fairness");
  app.add_option("--json", flags.json, "write the results here too");
  app.add_option("--clients", flags.clients, "processes")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--seconds", flags.seconds, "per transport")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--mib", flags.mib, "of the model, pushed whole")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--in_flight_mib", flags.in_flight_mib,
                 "of a client, without a receipt")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--transport", flags.transports, "grpc, shm or both")
      ->delimiter(',')
      ->check(CLI::IsMember({"grpc", "shm"}))
      ->capture_default_str();
  weir::AddLoadClientFlags(&app, &load, &client, &directory);
  return weir::BenchMain(&app, argc, argv, [&] {
    return client < 0 ? weir::Run(flags)
                      : weir::RunLoadClient(load, client, directory);
  });
}
