// Lookups and updates a second of an embedding table alone, beside a hash map.
//
//   weir bench table [--json FILE] [--rounds 9] [--rows 10000000]
//                    [--exponent 1] [--threads 2]
//
// Both sides hold the same rows (dim 16, Adagrad) and get the same batches of
// 4,096 distinct ids, as a worker sends them; id of rank r comes with a
// probability like r^-exponent. The map is absl::flat_hash_map<int64_t,
// std::array<float, 32>> (values and sums) in one thread, with Adagrad's
// formula as a plain loop at the processor's best level; no clock, count, locks
// or look for NaN. The table is measured with one thread and with `threads`,
// each with batches of its own. All sides run in every round, in wall time;
// ratios are medians over the rounds. The CPU-time ratio is per thread: what
// others on the machine took is not in it; `cores` is how many the threads
// really had.
//
// Growth: one thread inserts the second half of the rows in batches while
// another reads 16 known rows again and again. The figure is the longest such
// read (wall time; reads during which the reader lost its processor are left
// out), and beside it the longest while the first thread only looks up. For the
// map it is the longest insertion.
#include <sys/resource.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "bench/support/bench_main.h"
#include "bench/support/timing.h"
#include "common/base/status.h"
#include "common/job/initializer.h"
#include "common/math/random.h"
#include "common/math/simd.h"
#include "nlohmann/json.hpp"
#include "server/ps/table/table.h"

namespace weir {
namespace {

constexpr size_t kDim = 16;
constexpr size_t kBatch = 4096;
constexpr float kRate = 1e-3f;
constexpr double kTarget = 1.5;
constexpr double kStallTargetMs = 2;

using Row = std::array<float, 2 * kDim>;
using Map = absl::flat_hash_map<int64_t, Row>;

struct Options {
  std::string json;
  int rounds = 9;
  int64_t rows = 10'000'000;
  double exponent = 1;
  int threads = 2;
  int stripes = 64;
};

double ThreadCpuSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

double ResidentMib() {
  std::ifstream file("/proc/self/statm");
  double all = 0;
  double resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// ------------------------------------------------------------------ batches

// Ids look like hashes of features.
uint64_t IdOfRank(uint64_t rank) { return rank * 0x9e3779b97f4a7c15u; }

// A rank in [0, rows) with a probability like (rank + 1)^-exponent, by the
// inverse of the continuous distribution.
uint64_t DrawRank(const Options& options, double u) {
  const double n = static_cast<double>(options.rows);
  const double s = options.exponent;
  const double x =
      s == 1 ? std::pow(n, u)
             : std::pow(1 + u * (std::pow(n, 1 - s) - 1), 1 / (1 - s));
  return std::min(static_cast<uint64_t>(x) - 1,
                  static_cast<uint64_t>(options.rows) - 1);
}

std::vector<uint64_t> MakeBatch(const Options& options, RandomStream* random) {
  std::vector<uint64_t> ids;
  std::unordered_set<uint64_t> seen;
  while (ids.size() < kBatch) {
    const double u = static_cast<double>(random->Next64() >> 11) * 0x1p-53;
    const uint64_t rank = DrawRank(options, u);
    if (seen.insert(rank).second) {
      ids.push_back(IdOfRank(rank));
    }
  }
  return ids;
}

// ---------------------------------------------------------------- plain map

__attribute__((always_inline)) inline void AdagradBody(
    float* __restrict w, float* __restrict s, const float* __restrict g) {
  for (size_t i = 0; i < kDim; ++i) {
    s[i] += g[i] * g[i];
    w[i] -= kRate * g[i] / (std::sqrt(s[i]) + 1e-10f);
  }
}
void AdagradBaseline(float* w, float* s, const float* g) {
  AdagradBody(w, s, g);
}
#if WEIR_SIMD_X86
__attribute__((target("avx2"))) void AdagradAvx2(float* w, float* s,
                                                 const float* g) {
  AdagradBody(w, s, g);
}
__attribute__((target("avx512f,avx512vl,avx512dq"))) void AdagradAvx512(
    float* w, float* s, const float* g) {
  AdagradBody(w, s, g);
}
#endif

using PlainAdagrad = void (*)(float*, float*, const float*);
PlainAdagrad BestAdagrad() {
#if WEIR_SIMD_X86
  switch (BestSimdLevel()) {
    case SimdLevel::kAvx512:
      return AdagradAvx512;
    case SimdLevel::kAvx2:
      return AdagradAvx2;
    case SimdLevel::kBaseline:
      break;
  }
#endif
  return AdagradBaseline;
}

Row& FindOrMake(Map* map, const Table& table, uint64_t id) {
  const auto [at, made] = map->try_emplace(static_cast<int64_t>(id));
  if (made) {
    FillInitialRow(table.options().init, RowInitKey(table.options().seed), id,
                   table.options().dim, at->second.data());
    std::fill_n(at->second.data() + kDim, kDim, 0.0f);
  }
  return at->second;
}

// ------------------------------------------------------------------- rounds

struct Load {
  std::vector<std::vector<uint64_t>> batches;
  std::vector<float> gradients = std::vector<float>(kBatch * kDim);
  std::vector<float> out = std::vector<float>(kBatch * kDim);
};

struct Rate {
  double wall = 0;   // M ids a second
  double cpu = 0;    // M ids a CPU second
  double cores = 0;  // CPU seconds a second
};

// Runs `batch` on every batch of `loads`, a thread for each load.
Rate Time(
    std::vector<Load>* loads,
    const std::function<void(Load*, const std::vector<uint64_t>&)>& batch) {
  std::vector<double> cpu(loads->size());
  const double begin = Now();
  const auto run = [&](size_t t) {
    const double cpu_begin = ThreadCpuSeconds();
    Load& load = (*loads)[t];
    for (const std::vector<uint64_t>& ids : load.batches) {
      batch(&load, ids);
    }
    cpu[t] = ThreadCpuSeconds() - cpu_begin;
  };
  std::vector<std::thread> threads;
  for (size_t t = 1; t < loads->size(); ++t) {
    threads.emplace_back(run, t);
  }
  run(0);
  for (std::thread& thread : threads) {
    thread.join();
  }
  const double wall = Now() - begin;
  double ids = 0;
  double cpu_sum = 0;
  for (size_t t = 0; t < loads->size(); ++t) {
    ids += static_cast<double>((*loads)[t].batches.size() * kBatch);
    cpu_sum += cpu[t];
  }
  return {ids / wall * 1e-6, ids / cpu_sum * 1e-6, cpu_sum / wall};
}

struct Figures {
  std::vector<double> map, one, many, ratio_one, ratio_many, ratio_cpu, cores;
};

void Note(const Rate& map, const Rate& one, const Rate& many, Figures* out) {
  out->map.push_back(map.wall);
  out->one.push_back(one.wall);
  out->many.push_back(many.wall);
  out->ratio_one.push_back(one.wall / map.wall);
  out->ratio_many.push_back(many.wall / map.wall);
  out->ratio_cpu.push_back(many.cpu / map.cpu);
  out->cores.push_back(many.cores);
}

nlohmann::json Print(const char* name, const Figures& figures, int threads) {
  const auto [least, most] =
      std::minmax_element(figures.ratio_many.begin(), figures.ratio_many.end());
  std::printf(
      "%-8s map %6.2f  table %6.2f, %d threads %6.2f M ids/s;  ratio %.2f, "
      "%d threads %.2f (%.2f to %.2f) on %.2f cores, CPU time per thread %.2f; "
      " "
      "target %.1f\n",
      name, Median(figures.map), Median(figures.one), threads,
      Median(figures.many), Median(figures.ratio_one), threads,
      Median(figures.ratio_many), *least, *most, Median(figures.cores),
      Median(figures.ratio_cpu), kTarget);
  return {{"map_mids", Median(figures.map)},
          {"table_mids", Median(figures.one)},
          {"threads_mids", Median(figures.many)},
          {"ratio_one", Median(figures.ratio_one)},
          {"ratio", Median(figures.ratio_many)},
          {"ratio_least", *least},
          {"ratio_cpu", Median(figures.ratio_cpu)},
          {"cores", Median(figures.cores)},
          {"target", kTarget}};
}

// ------------------------------------------------------------------- growth

// Looks up all ranks of [begin, end), in batches; new ones are made.
void LookUpRanks(Table* table, uint64_t begin, uint64_t end) {
  std::vector<uint64_t> ids;
  std::vector<float> out(kBatch * kDim);
  for (uint64_t rank = begin; rank < end; ++rank) {
    ids.push_back(IdOfRank(rank));
    if (ids.size() == kBatch || rank + 1 == end) {
      table->Lookup(ids, Table::Mode::kTrain, out.data()).IgnoreError();
      ids.clear();
    }
  }
}

int64_t Preemptions() {
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

struct Reads {
  double longest_ms = 0;
  int64_t count = 0;
  int64_t slow = 0;  // beyond the target
};

// Reads known rows while `other` runs.
Reads TimeReads(Table* table, const std::function<void()>& other) {
  std::atomic<bool> done = false;
  Reads reads;
  std::thread reader([&] {
    std::vector<uint64_t> ids(16);
    std::vector<float> out(ids.size() * kDim);
    RandomStream random(1);
    while (!done) {
      for (uint64_t& id : ids) {
        id = IdOfRank(random.NextBelow(1000));
      }
      const int64_t preemptions = Preemptions();
      const double begin = Now();
      table->Lookup(ids, Table::Mode::kRead, out.data()).IgnoreError();
      const double took_ms = 1e3 * (Now() - begin);
      if (Preemptions() == preemptions) {
        reads.longest_ms = std::max(reads.longest_ms, took_ms);
        reads.slow += took_ms > kStallTargetMs;
        ++reads.count;
      }
    }
  });
  other();
  done = true;
  reader.join();
  return reads;
}

// Inserts all ranks; returns the longest insertion in ms of CPU time.
double FillMap(const Options& options, const Table& table, Map* map) {
  double longest = 0;
  double before = ThreadCpuSeconds();
  for (uint64_t rank = 0; rank < static_cast<uint64_t>(options.rows); ++rank) {
    FindOrMake(map, table, IdOfRank(rank));
    const double now = ThreadCpuSeconds();
    longest = std::max(longest, 1e3 * (now - before));
    before = now;
  }
  return longest;
}

// Fills both sides, and prints what that took.
nlohmann::json FillBoth(const Options& options, Table* table, Map* map) {
  double resident = ResidentMib();
  const uint64_t end = static_cast<uint64_t>(options.rows);
  LookUpRanks(table, 0, end / 2);
  const Reads quiet = TimeReads(table, [&] { LookUpRanks(table, 0, end / 2); });
  const Reads growing =
      TimeReads(table, [&] { LookUpRanks(table, end / 2, end); });
  const double table_mib = ResidentMib() - resident;
  resident = ResidentMib();
  const double map_ms = FillMap(options, *table, map);
  const double map_mib = ResidentMib() - resident;
  const TableFigures report = table->Report(0);
  const double rows = static_cast<double>(report.rows);
  const double per_payload = static_cast<double>(report.bytes) /
                             static_cast<double>(report.payload_bytes);
  std::printf(
      "%.0f rows: table %.1f bytes a row, %.3f of the payload (resident %.1f "
      "a row); map resident %.1f a row\n",
      rows, static_cast<double>(report.bytes) / rows, per_payload,
      table_mib * (1 << 20) / rows, map_mib * (1 << 20) / rows);
  std::printf(
      "longest read: %.3f ms while the table grows (%lld of %lld over the "
      "target of %.0f), %.3f ms while it does not (%lld of %lld);  longest "
      "insertion into the map %.0f ms\n",
      growing.longest_ms, static_cast<long long>(growing.slow),
      static_cast<long long>(growing.count), kStallTargetMs, quiet.longest_ms,
      static_cast<long long>(quiet.slow), static_cast<long long>(quiet.count),
      map_ms);
  return {{"rows", report.rows},
          {"exponent", options.exponent},
          {"bytes_per_payload", per_payload},
          {"longest_read_ms", growing.longest_ms},
          {"slow_reads", growing.slow},
          {"longest_read_quiet_ms", quiet.longest_ms},
          {"slow_reads_quiet", quiet.slow},
          {"map_longest_ms", map_ms}};
}

// Times both sides in every round.
void RunRounds(const Options& options, Table* table, Map* map, Figures* lookups,
               Figures* updates) {
  const PlainAdagrad adagrad = BestAdagrad();
  const auto map_lookup = [&](Load* load, const std::vector<uint64_t>& ids) {
    for (size_t i = 0; i < ids.size(); ++i) {
      const Row& row = FindOrMake(map, *table, ids[i]);
      std::memcpy(&load->out[i * kDim], row.data(), kDim * sizeof(float));
    }
  };
  const auto map_update = [&](Load* load, const std::vector<uint64_t>& ids) {
    for (size_t i = 0; i < ids.size(); ++i) {
      Row& row = FindOrMake(map, *table, ids[i]);
      adagrad(row.data(), row.data() + kDim, &load->gradients[i * kDim]);
    }
  };
  const auto table_lookup = [&](Load* load, const std::vector<uint64_t>& ids) {
    table->Lookup(ids, Table::Mode::kTrain, load->out.data()).IgnoreError();
  };
  const auto table_update = [&](Load* load, const std::vector<uint64_t>& ids) {
    table
        ->Update(ids, reinterpret_cast<const char*>(load->gradients.data()),
                 static_cast<double>(kRate))
        .IgnoreError();
  };

  for (int round = 0; round < options.rounds; ++round) {
    table->SetClock(static_cast<uint32_t>(round) + 1);
    std::vector<Load> many(static_cast<size_t>(options.threads));
    for (size_t t = 0; t < many.size(); ++t) {
      RandomStream random(MixKey(static_cast<uint64_t>(round), t));
      for (float& g : many[t].gradients) {
        g = random.NextFloat(-1, 1);
      }
      for (int b = 0; b < 100; ++b) {
        many[t].batches.push_back(MakeBatch(options, &random));
      }
    }
    std::vector<Load> one(1, many[0]);
    Note(Time(&one, map_lookup), Time(&one, table_lookup),
         Time(&many, table_lookup), lookups);
    Note(Time(&one, map_update), Time(&one, table_update),
         Time(&many, table_update), updates);
  }
}

absl::Status Run(const Options& options) {
  TableOptions table_options;
  table_options.name = "bench";
  table_options.dim = static_cast<int>(kDim);
  table_options.optimizer.mutable_adagrad();
  table_options.init = {InitKind::kUniform, 0.05f};
  table_options.stripes = options.stripes;
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Table> table,
                        Table::Create(table_options));
  Map map;

  nlohmann::json json = FillBoth(options, table.get(), &map);
  Figures lookups;
  Figures updates;
  RunRounds(options, table.get(), &map, &lookups, &updates);
  json["lookup"] = Print("lookup", lookups, options.threads);
  json["update"] = Print("update", updates, options.threads);
  if (!options.json.empty()) {
    std::ofstream(options.json) << json.dump(2) << "\n";
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::Options options;
  CLI::App app("Lookups and updates a second of an embedding table.");
  app.add_option("--json", options.json, "write the figures to this file");
  app.add_option("--rounds", options.rounds, "rounds of all sides");
  app.add_option("--rows", options.rows, "rows that both sides hold");
  app.add_option("--exponent", options.exponent,
                 "of the ids' power law; 0: uniform");
  app.add_option("--threads", options.threads, "threads of the table's side");
  app.add_option("--stripes", options.stripes, "stripes of the table");
  return weir::BenchMain(&app, argc, argv, [&] { return weir::Run(options); });
}
