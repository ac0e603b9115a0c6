// Runs simulated worlds, one seed after another (sim/ledger.h, sim/job.h).
//
//   weir_sim --seed 7              one world, and what the seed drew
//   weir_sim --first 1 --minutes 5 worlds from seed 1 on
//   weir_sim --first 1 --worlds 1000
//   WEIR_SIM_TRACE=1 weir_sim --seed 7   with a line for every event
//   WEIR_SIM_LOG=1 weir_sim --seed 7     with what the tasks log
//
// Ends with 1 and the seed when something does not hold. Some worlds at a time
// run in a child, because what a world leaves is not freed, and because a world
// may crash.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/base/logging.h"
#include "sim/job.h"
#include "sim/ledger.h"
#include "sim/world.h"

namespace weir::sim {
namespace {

using std::chrono::steady_clock;

constexpr uint64_t kWorldsOfAChild = 100;
// One world in so many is a whole job, which takes longer.
constexpr uint64_t kJobOneIn = 4;

// Shared by the children and their parent.
struct Totals {
  uint64_t seed;  // of the world that runs
  uint64_t worlds;
  WorldCounts counts;
  uint64_t points;
  uint64_t switches;
  uint64_t time_ns;
  uint64_t hash;

  void Add(const WorldResult& result) {
    ++worlds;
    counts += result.counts;
    points += result.outcome.points;
    switches += result.outcome.switches;
    time_ns += static_cast<uint64_t>(result.outcome.time.count());
    hash = hash * 31 + result.outcome.hash;
  }
};

void Show(const std::string& title, const Totals& of) {
  const WorldCounts& counts = of.counts;
  std::printf(
      "%s\n%lu contributions, %lu pushes of blocks, %lu of them repeated, %lu "
      "checkpoints, %lu messages\n%lu faults: %lu resets, %lu parted, %lu "
      "kills, %lu SIGTERM, %lu SIGSTOP, %lu started twice, %lu steps of the "
      "wall clock, %lu calls of the store\n%lu points, %lu changes of fibres, "
      "%.3f s of the world, hash %016lx\n",
      title.c_str(), counts.contributions, counts.pushes, counts.duplicates,
      counts.checkpoints, counts.messages, counts.faults(), counts.resets,
      counts.parts, counts.kills, counts.stops, counts.pauses, counts.seconds,
      counts.wall_steps, counts.unavailable, of.points, of.switches,
      static_cast<double>(of.time_ns) * 1e-9, of.hash);
}

// Returns whether all holds in the world of `seed`, and says what does not.
bool RunOne(uint64_t seed, bool show, Totals* totals) {
  totals->seed = seed;
  const WorldResult result =
      seed % kJobOneIn == 0 ? RunJob(seed) : RunLedger(seed);
  totals->Add(result);
  if (show || !result.broken.empty()) {
    Totals one = {};
    one.Add(result);
    Show("seed " + std::to_string(seed) + ": " + result.job, one);
  }
  if (!result.broken.empty()) {
    std::printf("BROKEN: %s\n", result.broken.c_str());
  }
  return result.broken.empty();
}

int RunMany(uint64_t first, uint64_t worlds_max, steady_clock::time_point end) {
  void* const shared = mmap(nullptr, sizeof(Totals), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    std::perror("weir_sim");
    return 2;
  }
  auto* const totals = static_cast<Totals*>(shared);  // zeroed
  const auto more = [&] {
    return totals->worlds < worlds_max && steady_clock::now() < end;
  };
  while (more()) {
    const pid_t child = fork();
    if (child < 0) {
      std::perror("weir_sim");
      return 2;
    }
    if (child == 0) {
      bool holds = true;
      for (uint64_t i = 0; i < kWorldsOfAChild && holds && more(); ++i) {
        holds = RunOne(first + totals->worlds, /*show=*/false, totals);
      }
      std::fflush(stdout);
      _exit(holds ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) {
      std::printf("BROKEN: the world of seed %lu ended by signal %d\n",
                  totals->seed, WTERMSIG(status));
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      return 1;
    }
  }
  Show(std::to_string(totals->worlds) + " worlds, the last of seed " +
           std::to_string(totals->seed),
       *totals);
  return 0;
}

int Main(int argc, char** argv) {
  uint64_t seed = 0;
  uint64_t first = 1;
  uint64_t worlds_max = UINT64_MAX;
  double minutes = 1;
  CLI::App app("Simulates jobs on a network and a store that fail.");
  CLI::Option* const one = app.add_option("--seed", seed, "One world.");
  app.add_option("--first", first, "The first of many seeds.");
  app.add_option("--worlds", worlds_max, "How many worlds.");
  app.add_option("--minutes", minutes, "For how long worlds are simulated.")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const bool shows_log = std::getenv("WEIR_SIM_LOG") != nullptr;  // NOLINT
  SetLogLevel(shows_log ? LogLevel::kInfo : LogLevel::kError);
  if (*one) {
    Totals totals = {};
    return RunOne(seed, /*show=*/true, &totals) ? 0 : 1;
  }
  return RunMany(
      first, worlds_max,
      steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(
                                std::chrono::duration<double>(minutes * 60)));
}

}  // namespace
}  // namespace weir::sim

int main(int argc, char** argv) { return weir::sim::Main(argc, argv); }
