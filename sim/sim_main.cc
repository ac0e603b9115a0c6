// Runs simulated worlds, one seed after another (sim/ledger.h, sim/job.h).
//
//   weir_sim --seed 7              one world, and what the seed drew
//   weir_sim --first 1 --minutes 5 worlds from seed 1 on
//   weir_sim --first 1 --worlds 1000
//   weir_sim --go_on FILE          from the seed on that FILE names, which then
//                                  names the next one
//   weir_sim --replay 7:40000001   world 7 without some of its faults, with a
//                                  line for every event
//   weir_sim --narrow ...          with the narrowest kernels: the same hash
//   WEIR_SIM_LOG=1 weir_sim --seed 7     with what the tasks log
//
// Ends with 1 when something does not hold, and then says the seed and the
// fewest faults with which it still does not. Some worlds at a time run in a
// child, because what a world leaves is not freed, and because a world may
// crash.
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "common/base/logging.h"
#include "common/math/simd.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "sim/job.h"
#include "sim/ledger.h"
#include "sim/world.h"

namespace weir::sim {
namespace {

using std::chrono::steady_clock;

constexpr uint64_t kWorldsOfAChild = 100;
// One world in so many is a whole job, which takes longer.
constexpr uint64_t kJobOneIn = 2;

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

// A folder with the jobs' data, for as long as it lives.
class DataFolder {
 public:
  DataFolder() {
    char path[] = "/tmp/weir_sim.XXXXXX";
    made_ = mkdtemp(path) != nullptr;
    path_ = path;
    made_ = made_ && WriteJobData(path_);
  }
  ~DataFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  bool made() const { return made_; }
  const std::string& path() const { return path_; }

 private:
  bool made_ = false;
  std::string path_;
};

void Show(const std::string& title, const Totals& of) {
  const WorldCounts& counts = of.counts;
  std::printf(
      "%s\n%lu contributions, %lu pushes of blocks, %lu of them repeated, %lu "
      "checkpoints, %lu messages\n%lu faults: %lu resets, %lu parted, %lu "
      "kills, %lu SIGTERM, %lu SIGSTOP, %lu started twice, %lu slow hosts, %lu "
      "steps of the wall clock, %lu losses of power, %lu times that the store "
      "was full or slow or failed, %lu bits that changed, %lu "
      "calls that it left open\n%lu points, %lu changes of fibres, %.3f s of "
      "the world, hash %016lx\n",
      title.c_str(), counts.contributions, counts.pushes, counts.duplicates,
      counts.checkpoints, counts.messages, counts.faults(), counts.resets,
      counts.parts, counts.kills, counts.stops, counts.pauses, counts.seconds,
      counts.slow, counts.wall_steps, counts.power, counts.store, counts.rot,
      counts.unavailable, of.points, of.switches,
      static_cast<double>(of.time_ns) * 1e-9, of.hash);
}

class Swarm {
 public:
  explicit Swarm(std::string data_dir) : data_dir_(std::move(data_dir)) {}

  // Runs one world and shows what the seed drew.
  int RunOne(uint64_t seed, LeftOut left_out) {
    const WorldResult result = Run(seed, left_out);
    ShowOne(seed, result);
    return result.broken.empty() ? 0 : 1;
  }

  // Runs worlds until one of both bounds. `*next` is the seed behind the last.
  int RunMany(uint64_t first, uint64_t worlds_max, steady_clock::time_point end,
              uint64_t* next) {
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
    int code = 0;
    while (more() && code == 0) {
      const pid_t child = fork();
      if (child < 0) {
        std::perror("weir_sim");
        return 2;
      }
      if (child == 0) {
        bool holds = true;
        for (uint64_t i = 0; i < kWorldsOfAChild && holds && more(); ++i) {
          holds = Holds(first + totals->worlds, totals);
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
      code = WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
    }
    *next = totals->seed + 1;
    if (code == 0) {
      Show(std::to_string(totals->worlds) + " worlds, the last of seed " +
               std::to_string(totals->seed),
           *totals);
    }
    return code;
  }

 private:
  WorldResult Run(uint64_t seed, LeftOut left_out) const {
    return seed % kJobOneIn == 0 ? RunJob(seed, data_dir_, left_out)
                                 : RunLedger(seed, left_out);
  }

  static void ShowOne(uint64_t seed, const WorldResult& result) {
    Totals one = {};
    one.Add(result);
    Show("seed " + std::to_string(seed) + ": " + result.job, one);
    if (!result.broken.empty()) {
      std::printf("BROKEN: %s\n", result.broken.c_str());
    }
  }

  bool Holds(uint64_t seed, Totals* totals) const {
    totals->seed = seed;
    WorldResult result = Run(seed, 0);
    totals->Add(result);
    if (result.broken.empty()) {
      return true;
    }
    ShowOne(seed, result);
    std::fflush(stdout);  // a smaller world may crash
    // As many faults are left out as still leave it broken.
    const LeftOut all = result.can_leave_out;
    LeftOut left_out = 0;
    for (LeftOut bit = 1; bit != 0; bit <<= 1) {
      if ((all & bit) == 0) {
        continue;
      }
      WorldResult less = Run(seed, left_out | bit);
      if (!less.broken.empty()) {
        left_out |= bit;
        result = std::move(less);
      }
    }
    std::printf("with the fewest faults: %s\nBROKEN: %s\n", result.job.c_str(),
                result.broken.c_str());
    std::printf("again, event by event: ./weir sim --replay %lu:%x\n", seed,
                left_out);
    return false;
  }

  const std::string data_dir_;
};

int Main(int argc, char** argv) {
  uint64_t seed = 0;
  uint64_t first = 1;
  uint64_t worlds_max = UINT64_MAX;
  double minutes = 1;
  std::string replay;
  std::string go_on;
  CLI::App app("Simulates jobs on a network and a store that fail.");
  CLI::Option* const one = app.add_option("--seed", seed, "One world.");
  app.add_option("--first", first, "The first of many seeds.");
  app.add_option("--worlds", worlds_max, "How many worlds.");
  app.add_option("--minutes", minutes, "For how long worlds are simulated.")
      ->check(CLI::PositiveNumber);
  app.add_option("--replay", replay,
                 "SEED:LEFT_OUT, as a world that failed has said it.");
  app.add_option("--go_on", go_on,
                 "A file with the first seed; gets the next one.");
  bool narrow = false;
  app.add_flag("--narrow", narrow, "The narrowest kernels for all arithmetic.");
  CLI11_PARSE(app, argc, argv);
  // oneDNN's other kernels add in other orders, and each machine has its own.
  dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41);
  if (narrow) {
    SetSimdLevelForTest(SimdLevel::kBaseline);
  }
  const bool shows_log = std::getenv("WEIR_SIM_LOG") != nullptr;  // NOLINT
  SetLogLevel(shows_log ? LogLevel::kInfo : LogLevel::kError);
  const DataFolder data;
  if (!data.made()) {
    std::fprintf(stderr, "weir_sim: cannot write to %s\n", data.path().c_str());
    return 2;
  }
  Swarm swarm(data.path());
  if (!replay.empty()) {
    unsigned int left_out = 0;
    if (std::sscanf(replay.c_str(), "%lu:%x", &seed, &left_out) != 2) {
      std::fprintf(stderr, "weir_sim: --replay %s: not SEED:LEFT_OUT\n",
                   replay.c_str());
      return 2;
    }
    setenv("WEIR_SIM_TRACE", "1", 1);  // NOLINT: no other thread
    return swarm.RunOne(seed, left_out);
  }
  if (*one) {
    return swarm.RunOne(seed, 0);
  }
  if (!go_on.empty()) {
    std::ifstream(go_on) >> first;  // nothing is read where no file is
  }
  uint64_t next = first;
  const int code = swarm.RunMany(
      first, worlds_max,
      steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(
                                std::chrono::duration<double>(minutes * 60)),
      &next);
  if (!go_on.empty() && !(std::ofstream(go_on) << next << "\n")) {
    std::fprintf(stderr, "weir_sim: cannot write %s\n", go_on.c_str());
    return 2;
  }
  return code;
}

}  // namespace
}  // namespace weir::sim

int main(int argc, char** argv) { return weir::sim::Main(argc, argv); }
