// Runs simulated worlds, one seed after another: see sim/ledger.h.
//
//   weir_sim --seed 7              one world, and what the seed drew
//   weir_sim --first 1 --minutes 5 worlds from seed 1 on
//   weir_sim --first 1 --worlds 1000
//   WEIR_SIM_TRACE=1 weir_sim --seed 7   with a line for every event
//
// Ends with 1 and the seed when something does not hold.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "common/base/logging.h"
#include "sim/ledger.h"

namespace weir::sim {
namespace {

void Show(uint64_t seed, const LedgerResult& result) {
  std::printf(
      "seed %lu: %s\n"
      "%lu contributions, %lu pushes of blocks, %lu of them repeated, %lu "
      "messages, %lu resets, %lu kills, %lu parted, %lu points, %lu changes of "
      "fibres, %.3f s of the world, hash %016lx\n",
      seed, result.job.c_str(), result.contributions, result.pushes,
      result.duplicates, result.messages, result.resets, result.kills,
      result.parts, result.outcome.points, result.outcome.switches,
      std::chrono::duration<double>(result.outcome.time).count(),
      result.outcome.hash);
}

int Main(int argc, char** argv) {
  uint64_t seed = 0;
  uint64_t first = 1;
  uint64_t worlds_max = UINT64_MAX;
  double minutes = 1;
  CLI::App app("Simulates stores, clients and a network that breaks.");
  app.add_option("--seed", seed, "One world, of this seed.");
  app.add_option("--first", first, "The first of many seeds.");
  app.add_option("--worlds", worlds_max, "How many worlds.");
  app.add_option("--minutes", minutes, "For how long worlds are simulated.")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  SetLogLevel(LogLevel::kError);

  LedgerResult sum;
  uint64_t worlds = 0;
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::duration<double>(minutes * 60);
  for (uint64_t s = seed != 0 ? seed : first;
       worlds < worlds_max && std::chrono::steady_clock::now() < end; ++s) {
    const LedgerResult result = RunLedger(s);
    if (!result.broken.empty() || seed != 0) {
      Show(s, result);
    }
    if (!result.broken.empty()) {
      std::printf("BROKEN: %s\n", result.broken.c_str());
      return 1;
    }
    if (seed != 0) {
      return 0;
    }
    ++worlds;
    sum.contributions += result.contributions;
    sum.pushes += result.pushes;
    sum.duplicates += result.duplicates;
    sum.messages += result.messages;
    sum.resets += result.resets;
    sum.kills += result.kills;
    sum.parts += result.parts;
    sum.outcome.points += result.outcome.points;
    sum.outcome.switches += result.outcome.switches;
    sum.outcome.time += result.outcome.time;
    sum.outcome.hash = sum.outcome.hash * 31 + result.outcome.hash;
  }
  sum.job = "and the seeds before it, " + std::to_string(worlds) + " worlds";
  Show(first + worlds - 1, sum);
  return 0;
}

}  // namespace
}  // namespace weir::sim

int main(int argc, char** argv) { return weir::sim::Main(argc, argv); }
