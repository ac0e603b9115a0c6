// Measures what the store's arithmetic costs, against plain loops and memcpy.
//
//   bazel run -c opt //bench/store:store_kernels_bench
//
// range(0) is the element count: 8 Ki (in L1/L2), 256 Ki (one block), 16 Mi
// (memory). "gradient_GB" is bytes of gradient a second. BM_Plain_* are the
// same formulas as straight loops with aligned, non-aliasing pointers at the
// compiler's best for this processor: the yardstick of 0.8.
#include <benchmark/benchmark.h>
#include <google/protobuf/text_format.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "common/job/initializer.h"
#include "common/math/half.h"
#include "common/math/kernels.h"
#include "common/math/simd.h"
#include "server/ps/optimizer/optimizer.h"

namespace weir {
namespace {

constexpr int64_t kCounts[] = {8 << 10, 256 << 10, 16 << 20};

#if WEIR_SIMD_X86
// Levels by the flags alone, not by simd.h.
#define PLAIN_LOOP(level) __attribute__((noinline, target(level)))
#else
#define PLAIN_LOOP(level) __attribute__((noinline))
#endif

PLAIN_LOOP("avx512f,avx512vl")
void PlainSgd(float* __restrict w, const float* __restrict g, float lr,
              int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    w[i] -= lr * g[i];
  }
}

PLAIN_LOOP("avx512f,avx512vl")
void PlainAdam(float* __restrict w, float* __restrict m, float* __restrict v,
               const float* __restrict g, float lr, float root, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    m[i] = 0.9f * m[i] + 0.1f * g[i];
    v[i] = 0.999f * v[i] + 0.001f * g[i] * g[i];
    w[i] -= lr * m[i] / (std::sqrt(v[i]) / root + 1e-8f);
  }
}

PLAIN_LOOP("avx512f,avx512vl")
void PlainAdagrad(float* __restrict w, float* __restrict s,
                  const float* __restrict g, float lr, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    s[i] += g[i] * g[i];
    w[i] -= lr * g[i] / (std::sqrt(s[i]) + 1e-10f);
  }
}

void Report(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}

struct Arrays {
  explicit Arrays(int64_t n)
      : w(static_cast<size_t>(n), 0.5f),
        a(w.size(), 0.1f),
        b(w.size(), 0.1f),
        c(w.size(), 0.1f),
        g(w.size() + 1, 0.01f) {}
  std::vector<float> w, a, b, c, g;
};

void BM_Memcpy(benchmark::State& state) {
  Arrays x(state.range(0));
  for (auto _ : state) {
    std::memcpy(x.w.data(), x.g.data(), x.w.size() * 4);
    benchmark::ClobberMemory();
  }
  Report(state);
}

void BM_Plain_Sgd(benchmark::State& state) {
  Arrays x(state.range(0));
  for (auto _ : state) {
    PlainSgd(x.w.data(), x.g.data(), 1e-4f, state.range(0));
    benchmark::ClobberMemory();
  }
  Report(state);
}

void BM_Plain_Adagrad(benchmark::State& state) {
  Arrays x(state.range(0));
  for (auto _ : state) {
    PlainAdagrad(x.w.data(), x.a.data(), x.g.data(), 1e-4f, state.range(0));
    benchmark::ClobberMemory();
  }
  Report(state);
}

void BM_Plain_Adam(benchmark::State& state) {
  Arrays x(state.range(0));
  const volatile float root = 0.5f;  // no constant: the division stays one
  for (auto _ : state) {
    PlainAdam(x.w.data(), x.a.data(), x.b.data(), x.g.data(), 1e-4f, root,
              state.range(0));
    benchmark::ClobberMemory();
  }
  Report(state);
}

// `shift` bytes past an aligned address: how payloads arrive.
void BM_Apply(benchmark::State& state, const std::string& spec, int shift) {
  OptimizerSpec proto;
  google::protobuf::TextFormat::ParseFromString(spec, &proto);
  const auto optimizer = CreateOptimizer(proto, "optimizer").value();
  Arrays x(state.range(0));
  float* arrays[] = {x.a.data(), x.b.data(), x.c.data()};
  char* gradient = reinterpret_cast<char*>(x.g.data()) + shift;
  std::memmove(gradient, x.g.data(), x.w.size() * 4);
  uint64_t step = 1;
  for (auto _ : state) {
    optimizer->Apply({step++, 1e-4, {}}, x.w.data(), arrays, gradient,
                     state.range(0));
    benchmark::ClobberMemory();
  }
  Report(state);
}

void BM_AllFinite(benchmark::State& state) {
  Arrays x(state.range(0));
  for (auto _ : state) {
    benchmark::DoNotOptimize(AllFinite(
        reinterpret_cast<const char*>(x.g.data()) + 1, state.range(0)));
  }
  Report(state);
}

void BM_AddScaled(benchmark::State& state) {
  Arrays x(state.range(0));
  for (auto _ : state) {
    AddScaled(x.w.data(), reinterpret_cast<const char*>(x.g.data()), 0.5f,
              state.range(0));
    benchmark::ClobberMemory();
  }
  Report(state);
}

void BM_Encode(benchmark::State& state,
               void (*encode)(const float*, size_t, char*)) {
  Arrays x(state.range(0));
  for (auto _ : state) {
    encode(x.w.data(), x.w.size(), reinterpret_cast<char*>(x.g.data()));
    benchmark::ClobberMemory();
  }
  Report(state);
}

void BM_Decode(benchmark::State& state,
               void (*decode)(const char*, size_t, float*)) {
  Arrays x(state.range(0));
  for (auto _ : state) {
    decode(reinterpret_cast<const char*>(x.g.data()), x.w.size(), x.w.data());
    benchmark::ClobberMemory();
  }
  Report(state);
}

void BM_FillInitial(benchmark::State& state, InitKind kind) {
  Arrays x(state.range(0));
  for (auto _ : state) {
    FillInitial({kind, 0.1f}, 1, 0, 0, state.range(0), x.w.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void Counts(benchmark::internal::Benchmark* bench) {
  for (const int64_t count : kCounts) {
    bench->Arg(count);
  }
}

BENCHMARK(BM_Memcpy)->Apply(Counts);
BENCHMARK(BM_Plain_Sgd)->Apply(Counts);
BENCHMARK_CAPTURE(BM_Apply, sgd, "sgd {}", 0)->Apply(Counts);
BENCHMARK_CAPTURE(BM_Apply, sgd_unaligned, "sgd {}", 1)->Apply(Counts);
BENCHMARK_CAPTURE(BM_Apply, sgd_momentum, "sgd { momentum: 0.9 }", 0)
    ->Apply(Counts);
BENCHMARK(BM_Plain_Adagrad)->Apply(Counts);
BENCHMARK_CAPTURE(BM_Apply, adagrad, "adagrad {}", 0)->Apply(Counts);
BENCHMARK_CAPTURE(BM_Apply, rmsprop, "rmsprop {}", 0)->Apply(Counts);
BENCHMARK_CAPTURE(BM_Apply, adadelta, "adadelta {}", 0)->Apply(Counts);
BENCHMARK(BM_Plain_Adam)->Apply(Counts);
BENCHMARK_CAPTURE(BM_Apply, adam, "adam {}", 0)->Apply(Counts);
BENCHMARK_CAPTURE(BM_Apply, adam_unaligned, "adam {}", 1)->Apply(Counts);
BENCHMARK_CAPTURE(BM_Apply, adamw, "adamw {}", 0)->Apply(Counts);
BENCHMARK_CAPTURE(BM_Apply, adam_amsgrad, "adam { amsgrad: true }", 0)
    ->Apply(Counts);
BENCHMARK_CAPTURE(BM_Apply, ftrl, "ftrl { l1: 0.01 }", 0)->Apply(Counts);
BENCHMARK(BM_AllFinite)->Apply(Counts);
BENCHMARK(BM_AddScaled)->Apply(Counts);
BENCHMARK_CAPTURE(BM_Encode, bf16, FloatsToBf16)->Apply(Counts);
BENCHMARK_CAPTURE(BM_Encode, f16, FloatsToF16)->Apply(Counts);
BENCHMARK_CAPTURE(BM_Decode, bf16, Bf16ToFloats)->Apply(Counts);
BENCHMARK_CAPTURE(BM_Decode, f16, F16ToFloats)->Apply(Counts);
BENCHMARK_CAPTURE(BM_FillInitial, uniform, InitKind::kUniform)->Arg(kCounts[1]);
BENCHMARK_CAPTURE(BM_FillInitial, normal, InitKind::kNormal)->Arg(kCounts[1]);

}  // namespace
}  // namespace weir

BENCHMARK_MAIN();
