// Updates a second of the store alone, beside a plain loop over the same
// arrays and beside the memory's bandwidth.
//
//   weir bench store [--json FILE] [--rounds 15] [--mib 64]
//
// One worker pushes every block of a model in turn, in async mode; gradients
// come in pieces of 50 KiB that end inside an element, as gRPC brings them. The
// columns `sync 1` and `sync 2` are of the same in sync mode, with so many
// contributions to a step, over async by contributions a second. The
// plain loop is the optimizer's formula and nothing else, over the same
// gradients and arrays of the same size from the same arena: no look for NaN or
// Inf, no marks, no locks; compiled like the kernels. `check` is what the look
// for NaN and Inf adds to the kernel. All sides are timed in every round (CPU
// time, so that others on the machine disturb less); the ratios are medians
// over the rounds.
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/support/bench_main.h"
#include "bench/support/cluster.h"
#include "bench/support/timing.h"
#include "common/base/status.h"
#include "common/math/kernels.h"
#include "common/math/simd.h"
#include "google/protobuf/text_format.h"
#include "nlohmann/json.hpp"
#include "server/ps/memory/arena.h"
#include "server/ps/optimizer/optimizer.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

constexpr int64_t kBlockElements = int64_t{256} * 1024;  // the default
constexpr size_t kBlockBytes = size_t{kBlockElements} * 4;
constexpr size_t kPieceBytes = 50 * 1024 + 3;
constexpr double kTarget = 0.8;
constexpr double kCheckTarget = 0.1;
constexpr float kRate = 1e-6f;

// ------------------------------------------------------------- plain loops

struct Arrays {
  float* __restrict w;
  float* __restrict a;  // first state
  float* __restrict b;  // second state
  const float* __restrict g;
};

// A loop at the best level of this processor, chosen without
// common/math/simd.h.
#if WEIR_SIMD_X86
#define PLAIN_LOOP(name)                                                       \
  __attribute__((noinline, target("avx512f,avx512bw,avx512dq,avx512vl"))) void \
      name##Avx512(Arrays x, float root, int64_t n) {                          \
    name##Body(x, root, n);                                                    \
  }                                                                            \
  __attribute__((noinline, target("avx2"))) void name##Avx2(                   \
      Arrays x, float root, int64_t n) {                                       \
    name##Body(x, root, n);                                                    \
  }                                                                            \
  void name(Arrays x, float root, int64_t n) {                                 \
    if (__builtin_cpu_supports("avx512bw") &&                                  \
        __builtin_cpu_supports("avx512vl")) {                                  \
      name##Avx512(x, root, n);                                                \
    } else if (__builtin_cpu_supports("avx2")) {                               \
      name##Avx2(x, root, n);                                                  \
    } else {                                                                   \
      name##Body(x, root, n);                                                  \
    }                                                                          \
  }
#else
#define PLAIN_LOOP(name) \
  void name(Arrays x, float root, int64_t n) { name##Body(x, root, n); }
#endif
#define PLAIN_BODY inline __attribute__((always_inline)) void

PLAIN_BODY PlainSgdBody(Arrays x, float, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    x.w[i] -= kRate * x.g[i];
  }
}
PLAIN_LOOP(PlainSgd)

PLAIN_BODY PlainAdagradBody(Arrays x, float, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    x.a[i] += x.g[i] * x.g[i];
    x.w[i] -= kRate * x.g[i] / (std::sqrt(x.a[i]) + 1e-10f);
  }
}
PLAIN_LOOP(PlainAdagrad)

PLAIN_BODY PlainAdamBody(Arrays x, float root, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    x.a[i] = 0.9f * x.a[i] + 0.1f * x.g[i];
    x.b[i] = 0.999f * x.b[i] + 0.001f * x.g[i] * x.g[i];
    x.w[i] -= kRate * x.a[i] / (std::sqrt(x.b[i]) / root + 1e-8f);
  }
}
PLAIN_LOOP(PlainAdam)

PLAIN_BODY PlainAdamWBody(Arrays x, float root, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float w = x.w[i] * (1 - kRate * 0.01f);
    x.a[i] = 0.9f * x.a[i] + 0.1f * x.g[i];
    x.b[i] = 0.999f * x.b[i] + 0.001f * x.g[i] * x.g[i];
    x.w[i] = w - kRate * x.a[i] / (std::sqrt(x.b[i]) / root + 1e-8f);
  }
}
PLAIN_LOOP(PlainAdamW)

PLAIN_BODY PlainFtrlBody(Arrays x, float, int64_t n) {
  constexpr float kL1 = 0.01f;
  for (int64_t i = 0; i < n; ++i) {
    const float n_new = x.a[i] + x.g[i] * x.g[i];
    const float root_new = std::sqrt(n_new);
    const float z =
        x.b[i] + x.g[i] - (root_new - std::sqrt(x.a[i])) / kRate * x.w[i];
    const float moved = (std::copysign(kL1, z) - z) / (root_new / kRate);
    x.w[i] = std::fabs(z) > kL1 ? moved : 0.0f;
    x.a[i] = n_new;
    x.b[i] = z;
  }
}
PLAIN_LOOP(PlainFtrl)

struct Case {
  const char* name;
  const char* spec;
  int state;
  void (*plain)(Arrays, float, int64_t);
};

constexpr Case kCases[] = {
    {"sgd", "sgd {}", 0, PlainSgd},
    {"adagrad", "adagrad {}", 1, PlainAdagrad},
    {"adam", "adam {}", 2, PlainAdam},
    {"adamw", "adamw {}", 2, PlainAdamW},
    {"ftrl", "ftrl { l1: 0.01 }", 2, PlainFtrl},
};

// --------------------------------------------------------------- measuring

struct Flags {
  std::string json;
  int rounds = 15;
  int64_t mib = 64;  // size of the model
  std::string only;
};

double CpuNow() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

double Timed(const std::function<void()>& run) {
  const double begin = CpuNow();
  run();
  return CpuNow() - begin;
}

// Blocks of one array of the model, in memory as the store's.
class ArenaArray {
 public:
  ArenaArray(int64_t blocks, float value) {
    for (int64_t i = 0; i < blocks; ++i) {
      blocks_.push_back(
          static_cast<float*>(Arena::Heap()->Allocate(kBlockBytes)));
      std::fill_n(blocks_.back(), kBlockElements, value);
    }
  }
  ~ArenaArray() {
    for (float* const block : blocks_) {
      Arena::Heap()->Free(block, kBlockBytes);
    }
  }
  float* operator[](int64_t i) { return blocks_[static_cast<size_t>(i)]; }

 private:
  std::vector<float*> blocks_;
};

std::vector<float> Gradient(int64_t block) {
  std::vector<float> values(kBlockElements);
  for (int64_t i = 0; i < kBlockElements; ++i) {
    values[static_cast<size_t>(i)] =
        0.01f * static_cast<float>((i * 2654435761 + block) % 2001 - 1000) /
        1000;
  }
  return values;
}

// A store that gets contributions of one worker.
struct StoreSide {
  StoreSide(const Case& the_case, int64_t blocks, const std::string& update,
            uint32_t step_contributions)
      : ps(ParseDeclaration(absl::StrCat(
            "variable { name: 'a' shape: ", kBlockElements * blocks,
            " } block_elements: ", kBlockElements, " group { optimizer { ",
            the_case.spec, " } schedule { learning_rate: ", kRate,
            " } } update { ", update, " }"))),
        contributions(step_contributions) {}

  StoreTester ps;
  const uint32_t contributions;  // to a version
  uint64_t sequence = 0;
};

// One optimizer's sides. Each goes over the whole model once.
class Sides {
 public:
  Sides(const Case& the_case, int64_t blocks)
      : case_(the_case),
        blocks_(blocks),
        w_(blocks, 0.5f),
        a_(the_case.state > 0 ? blocks : 0, 0.1f),
        b_(the_case.state > 1 ? blocks : 0, 0.1f),
        g_(blocks, 0.0f),
        async_(the_case, blocks, "async {}", 1),
        sync_1_(the_case, blocks, "sync { contributions: 1 }", 1),
        sync_2_(the_case, blocks, "sync { contributions: 2 }", 2) {
    OptimizerSpec spec;
    google::protobuf::TextFormat::ParseFromString(the_case.spec, &spec);
    optimizer_ = *CreateOptimizer(spec, "optimizer");
    for (int64_t i = 0; i < blocks; ++i) {
      const std::vector<float> gradient = Gradient(i);
      std::copy(gradient.begin(), gradient.end(), g_[i]);
      std::vector<std::span<const char>> pieces;
      for (size_t at = 0; at < kBlockBytes; at += kPieceBytes) {
        pieces.emplace_back(reinterpret_cast<const char*>(g_[i]) + at,
                            std::min(kPieceBytes, kBlockBytes - at));
      }
      payloads_.emplace_back(std::move(pieces), nullptr);
    }
  }

  void Plain() {
    const float root = static_cast<float>(
        std::sqrt(1 - std::pow(0.999, static_cast<double>(++plain_steps_))));
    for (int64_t i = 0; i < blocks_; ++i) {
      case_.plain({w_[i], case_.state > 0 ? a_[i] : nullptr,
                   case_.state > 1 ? b_[i] : nullptr, g_[i]},
                  root, kBlockElements);
    }
  }

  void Kernel(bool check) {
    const StepContext context = {plain_steps_, kRate, {}};
    for (int64_t i = 0; i < blocks_; ++i) {
      float* state[] = {case_.state > 0 ? a_[i] : nullptr,
                        case_.state > 1 ? b_[i] : nullptr, nullptr};
      const char* gradient = reinterpret_cast<const char*>(g_[i]);
      if (!check || AllFinite(gradient, kBlockElements)) {
        optimizer_->Apply(context, w_[i], state, gradient, kBlockElements);
      }
    }
  }

  absl::Status Async() { return Push(&async_); }
  absl::Status Sync1() { return Push(&sync_1_); }
  absl::Status Sync2() { return Push(&sync_2_); }

 private:
  // One contribution.
  absl::Status Push(StoreSide* side) {
    const uint64_t version = side->sequence / side->contributions;
    const auto index =
        static_cast<uint32_t>(side->sequence % side->contributions);
    for (int64_t i = 0; i < blocks_; ++i) {
      WEIR_RETURN_IF_ERROR(
          side->ps.store
              ->Push(side->ps.Chunk(0, side->sequence, static_cast<int>(i),
                                    version, index),
                     payloads_[static_cast<size_t>(i)])
              .status());
    }
    ++side->sequence;
    return absl::OkStatus();
  }

  const Case& case_;
  const int64_t blocks_;
  ArenaArray w_, a_, b_, g_;
  std::vector<Payload> payloads_;
  StoreSide async_, sync_1_, sync_2_;
  std::unique_ptr<Optimizer> optimizer_;
  uint64_t plain_steps_ = 0;
};

struct Times {
  std::vector<double> plain_s, store_s, sync_1_s, sync_2_s, kernel_s, checked_s,
      memcpy_s;
};

std::vector<double> Quotients(const std::vector<double>& over,
                              const std::vector<double>& under) {
  std::vector<double> quotients;
  for (size_t i = 0; i < over.size(); ++i) {
    quotients.push_back(over[i] / under[i]);
  }
  return quotients;
}

// Times every side once.
Times TimeOnce(Sides& sides, ArenaArray& from, ArenaArray& to, int64_t blocks,
               absl::Status& status) {
  Times once;
  once.memcpy_s = {Timed([&] {
    for (int64_t i = 0; i < blocks; ++i) {
      std::memcpy(to[i], from[i], kBlockBytes);
    }
  })};
  once.plain_s = {Timed([&] { sides.Plain(); })};
  once.store_s = {Timed([&] { status = sides.Async(); })};
  once.sync_1_s = {Timed([&] { status.Update(sides.Sync1()); })};
  // Both contributions of a step, of which the second one publishes.
  once.sync_2_s = {Timed([&] {
                     status.Update(sides.Sync2());
                     status.Update(sides.Sync2());
                   }) /
                   2};
  once.kernel_s = {Timed([&] { sides.Kernel(false); })};
  once.checked_s = {Timed([&] { sides.Kernel(true); })};
  return once;
}

absl::StatusOr<nlohmann::json> MeasureCase(const Flags& flags,
                                           const Case& the_case) {
  const int64_t blocks = flags.mib;
  Sides sides(the_case, blocks);
  ArenaArray from(blocks, 1.0f);
  ArenaArray to(blocks, 2.0f);
  Times times;
  absl::Status status;
  for (int round = -1; round < flags.rounds && status.ok(); ++round) {
    if (round >= 0 && round % 5 == 0) {
      std::fprintf(stderr, "%s: round %d of %d\n", the_case.name, round + 1,
                   flags.rounds);
    }
    const Times once = TimeOnce(sides, from, to, blocks, status);
    if (round < 0) {
      continue;  // warms up
    }
    times.memcpy_s.push_back(once.memcpy_s[0]);
    times.plain_s.push_back(once.plain_s[0]);
    times.store_s.push_back(once.store_s[0]);
    times.sync_1_s.push_back(once.sync_1_s[0]);
    times.sync_2_s.push_back(once.sync_2_s[0]);
    times.kernel_s.push_back(once.kernel_s[0]);
    times.checked_s.push_back(once.checked_s[0]);
  }
  WEIR_RETURN_IF_ERROR(status);
  const double elements = static_cast<double>(blocks * kBlockElements);
  // A memcpy reads and writes its bytes. An update reads the gradient, and
  // reads and writes values and state.
  const double moved = 4 * elements * (3 + 2 * the_case.state);
  const double bandwidth = 8 * elements / Median(times.memcpy_s);
  const std::vector<double> ratio = Quotients(times.plain_s, times.store_s);
  const double check = Median(Quotients(times.checked_s, times.kernel_s)) - 1;
  const auto [low, high] = std::minmax_element(ratio.begin(), ratio.end());
  const nlohmann::json row = {
      {"optimizer", the_case.name},
      {"store_mega_updates_per_s", 1e-6 * elements / Median(times.store_s)},
      {"plain_mega_updates_per_s", 1e-6 * elements / Median(times.plain_s)},
      {"store_over_plain", Median(ratio)},
      {"store_over_plain_rounds", ratio},
      {"kernel_over_plain", Median(Quotients(times.plain_s, times.kernel_s))},
      {"store_bytes_over_bandwidth", moved / Median(times.store_s) / bandwidth},
      {"sync_1_over_async", Median(Quotients(times.store_s, times.sync_1_s))},
      {"sync_2_over_async", Median(Quotients(times.store_s, times.sync_2_s))},
      {"bandwidth_gb_per_s", 1e-9 * bandwidth},
      {"check_cost", check}};
  std::printf(
      "%-8s %9.0f %9.0f %7.3f  (%.3f-%.3f) %8.3f %8.2f %8.1f%% %7.3f "
      "%7.3f\n",
      the_case.name, row["store_mega_updates_per_s"].get<double>(),
      row["plain_mega_updates_per_s"].get<double>(), Median(ratio), *low, *high,
      row["kernel_over_plain"].get<double>(),
      row["store_bytes_over_bandwidth"].get<double>(), 100 * check,
      row["sync_1_over_async"].get<double>(),
      row["sync_2_over_async"].get<double>());
  std::fflush(stdout);
  return row;
}

absl::Status Run(const Flags& flags) {
  constexpr char kHead[] = "%-8s %9s %9s %7s  %-13s %8s %8s %9s %7s %7s\n";
  std::printf(kHead, "", "store", "plain", "ratio", "(low-high)", "kernel/",
              "of band-", "check", "sync 1", "sync 2");
  std::printf(kHead, "", "Mupd/s", "Mupd/s", "", "", "plain", "width", "",
              "/async", "/async");
  nlohmann::json rows = nlohmann::json::array();
  for (const Case& the_case : kCases) {
    if (flags.only.empty() || flags.only == the_case.name) {
      WEIR_ASSIGN_OR_RETURN(nlohmann::json row, MeasureCase(flags, the_case));
      rows.push_back(std::move(row));
    }
  }
  std::printf("targets: ratio %.1f; check at most %.0f%%\n", kTarget,
              100 * kCheckTarget);
  if (flags.json.empty()) {
    return absl::OkStatus();
  }
  return Say(flags.json, nlohmann::json{{"bench", "store"},
                                        {"model_mib", flags.mib},
                                        {"target_ratio", kTarget},
                                        {"target_check", kCheckTarget},
                                        {"rows", rows}}
                             .dump(2));
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::Flags flags;
  CLI::App app("Updates of the store alone");
  app.add_option("--json", flags.json, "write the results here too");
  app.add_option("--rounds", flags.rounds, "of all sides in turns")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--mib", flags.mib, "of the model")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--only", flags.only, "one optimizer");
  return weir::BenchMain(&app, argc, argv, [&] { return weir::Run(flags); });
}
