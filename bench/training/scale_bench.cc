// Step time over a network, for P ps and W workers, beside what the links
// allow.
//
//   weir bench scale [--json FILE] [--rate 1gbit] [--rounds 3] [--mib 64]
//
// Every ps and worker is a host of its own (bench/support/test_hosts.h). A step
// pushes and pulls a flat model through the client that workers have, in async
// mode with SGD applied; nothing is computed. Links are full duplex, each
// direction shaped on its own, so `bytes` are those of one direction, and no
// step can be shorter than
//   bound = max(bytes / link, W bytes / (P link)),
// with link = what iperf3 gets through the same shaped link in the same round.
// A step takes at least the bound and, as nothing is computed behind which the
// next exchange could begin, one block's way back from every ps: with P ps that
// is P MiB, which a small model shows (--mib).
// Rounds go through all (P, W) in turns; figures are medians. CPU is what all
// processes of the bench take, in cores, beside those of the machine: where it
// comes near them, they and not the network are the limit.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/support/bench_main.h"
#include "bench/support/cluster.h"
#include "bench/support/load.h"
#include "bench/support/test_hosts.h"
#include "bench/support/timing.h"
#include "common/base/malloc_settings.h"
#include "common/base/status.h"
#include "nlohmann/json.hpp"

namespace weir {
namespace {

constexpr int kPort = 2222;
constexpr double kTarget = 0.9;
constexpr char kLogPath[] = "/tmp/weir_scale_bench.log";
// A measurement takes so many times the longer of the two bounds: a shorter one
// would cut too many steps.
constexpr double kStepsMin = 5;

struct Flags {
  std::string json;
  std::string rate = "1gbit";
  int rounds = 3;
  double seconds = 4;
  int64_t mib = 64;
  std::vector<std::string> grid = {"1x1", "1x4", "2x4", "4x4", "4x8"};
};

struct Figures {
  std::vector<double> step_s, slowest_s, bound_s, ratio, cpu;
};

using Shape = std::pair<int, int>;  // ps, workers

absl::StatusOr<Shape> ParseShape(const std::string& text) {
  int ps = 0;
  int workers = 0;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%dx%d%c", &ps, &workers, &rest) != 2 ||
      ps < 1 || workers < 1 || ps + workers > TestHosts::kHostsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not ps x workers, as in 2x4"));
  }
  return Shape(ps, workers);
}

// Hosts 0..P-1 are the ps', the next W the workers'.
absl::Status MeasureShape(const Flags& flags, const TestHosts& hosts,
                          const Shape& shape, double link, Figures* figures) {
  const auto [ps_count, workers] = shape;
  LoadOptions load;
  for (int s = 0; s < ps_count; ++s) {
    load.addresses.push_back(absl::StrCat(hosts.address(s), ":", kPort));
  }
  load.clients = workers;
  load.bytes = flags.mib << 20;
  load.log_path = kLogPath;
  WEIR_ASSIGN_OR_RETURN(const auto ps,
                        StartPs(
                            load.addresses,
                            [&hosts](int s, std::vector<std::string> argv) {
                              return hosts.Command(s, std::move(argv));
                            },
                            kLogPath));
  WEIR_ASSIGN_OR_RETURN(
      const auto clients,
      Load::Start(load, [&hosts, ps_count = ps_count](
                            int w, std::vector<std::string> argv) {
        return hosts.Command(ps_count + w, std::move(argv));
      }));
  const auto bytes = static_cast<double>(load.bytes);
  const double bound =
      std::max(bytes / link, workers * bytes / (ps_count * link));
  const auto cpu_now = [&] {
    double sum = clients->cpu_seconds();
    for (const auto& child : ps) {
      sum += CpuSeconds(child->pid());
    }
    return std::pair(Now(), sum);
  };
  const auto [cpu_begin, cpu_spent] = cpu_now();
  WEIR_ASSIGN_OR_RETURN(
      const std::vector<ClientResult> results,
      clients->Run(std::max(flags.seconds, kStepsMin * bound), [] {}));
  const auto [cpu_end, cpu_total] = cpu_now();
  double steps_per_s = 0;
  double slowest = results[0].steps_per_s;
  for (const ClientResult& result : results) {
    steps_per_s += result.steps_per_s;
    slowest = std::min(slowest, result.steps_per_s);
  }
  const double step = workers / steps_per_s;
  figures->step_s.push_back(step);
  figures->slowest_s.push_back(1 / slowest);
  figures->bound_s.push_back(bound);
  figures->ratio.push_back(bound / step);
  figures->cpu.push_back((cpu_total - cpu_spent) / (cpu_end - cpu_begin));
  return absl::OkStatus();
}

void PrintHead() {
  std::printf("%2s %2s %9s %9s %11s %9s %7s %15s %9s\n", "P", "W", "step ms",
              "bound ms", "slowest ms", "MB/s", "ratio", "(lowest-highest)",
              "CPU cores");
}

nlohmann::json Row(const Flags& flags, const Shape& shape, const Figures& f) {
  const double step = Median(f.step_s);
  const double megabytes = static_cast<double>(flags.mib << 20) * 1e-6;
  const auto [lowest, highest] =
      std::minmax_element(f.ratio.begin(), f.ratio.end());
  std::printf("%2d %2d %9.1f %9.1f %11.1f %9.1f %7.3f    (%.3f-%.3f) %9.2f\n",
              shape.first, shape.second, 1e3 * step, 1e3 * Median(f.bound_s),
              1e3 * Median(f.slowest_s), shape.second * megabytes / step,
              Median(f.ratio), *lowest, *highest, Median(f.cpu));
  return {{"ps", shape.first},
          {"workers", shape.second},
          {"step_ms", 1e3 * step},
          {"bound_ms", 1e3 * Median(f.bound_s)},
          {"slowest_worker_step_ms", 1e3 * Median(f.slowest_s)},
          {"mb_per_s_all_workers_one_way", shape.second * megabytes / step},
          {"ratio", Median(f.ratio)},
          {"ratio_rounds", f.ratio},
          {"cpu_cores", Median(f.cpu)}};
}

absl::Status Run(const Flags& flags) {
  WEIR_ASSIGN_OR_RETURN(const double rate, ParseRate(flags.rate));
  std::vector<Shape> shapes;
  int hosts_needed = 2;
  for (const std::string& text : flags.grid) {
    WEIR_ASSIGN_OR_RETURN(const Shape shape, ParseShape(text));
    shapes.push_back(shape);
    hosts_needed = std::max(hosts_needed, shape.first + shape.second);
  }
  WEIR_ASSIGN_OR_RETURN(const auto hosts,
                        TestHosts::Create(hosts_needed, rate));
  std::map<Shape, Figures> figures;
  std::vector<double> links;
  for (int round = 1; round <= flags.rounds; ++round) {
    WEIR_ASSIGN_OR_RETURN(const double link, hosts->Goodput(0, 1, 3));
    links.push_back(link);
    for (const Shape& shape : shapes) {
      std::fprintf(stderr,
                   "round %d of %d: link %.1f MB/s, %d ps, %d workers\n", round,
                   flags.rounds, 1e-6 * link, shape.first, shape.second);
      WEIR_RETURN_IF_ERROR(
          MeasureShape(flags, *hosts, shape, link, &figures[shape]));
    }
  }
  std::printf(
      "links %s each way, iperf3 %.1f MB/s; %lld MiB up and down a step; %ld "
      "cores\n",
      flags.rate.c_str(), 1e-6 * Median(links),
      static_cast<long long>(flags.mib), sysconf(_SC_NPROCESSORS_ONLN));
  PrintHead();
  nlohmann::json rows = nlohmann::json::array();
  for (const Shape& shape : shapes) {
    rows.push_back(Row(flags, shape, figures[shape]));
  }
  std::printf("target: ratio %.1f, and none falls when P grows\n", kTarget);
  if (flags.json.empty()) {
    return absl::OkStatus();
  }
  return Say(flags.json,
             nlohmann::json{{"bench", "scale"},
                            {"rate_bit_per_s", rate},
                            {"link_bytes_per_s", Median(links)},
                            {"link_bytes_per_s_rounds", links},
                            {"bytes_each_way", flags.mib << 20},
                            {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
                            {"target", kTarget},
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
  CLI::App app("Step time of P ps and W workers over a network");
  app.add_option("--json", flags.json, "write the results here too");
  app.add_option("--rate", flags.rate, "of each link, each way")
      ->capture_default_str();
  app.add_option("--rounds", flags.rounds, "through all (P, W)")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--seconds", flags.seconds, "per (P, W) and round, at least")
      ->capture_default_str();
  app.add_option("--mib", flags.mib, "of the model")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--grid", flags.grid, "ps x workers")
      ->delimiter(',')
      ->capture_default_str();
  weir::AddLoadClientFlags(&app, &load, &client, &directory);
  return weir::BenchMain(&app, argc, argv, [&] {
    return client < 0 ? weir::Run(flags)
                      : weir::RunLoadClient(load, client, directory);
  });
}
