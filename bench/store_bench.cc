// What the store costs beside a copy of the same bytes.
//
//   bazel run -c opt //bench:store_bench
// Results, with date and machine: docs/performance.md.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "tests/server/ps/store_tester.h"

namespace weir {
namespace {

constexpr int64_t kElements = int64_t{256} * 1024;  // 1 MiB, the default block
constexpr int kBlocks = 16;

Declaration Job(const std::string& optimizer, const std::string& update) {
  return ParseDeclaration(absl::StrCat(
      "variable { name: 'a' shape: ", kElements * kBlocks,
      " } block_elements: ", kElements, " group { optimizer { ", optimizer,
      " } schedule { learning_rate: 1e-6 } } update { ", update, " }"));
}

void SetBytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * kElements * 4);
}

void BM_Memcpy_1MiB(benchmark::State& state) {
  const std::vector<float> from(kElements * kBlocks, 1.0f);
  std::vector<float> to(kElements * kBlocks);
  int64_t i = 0;
  for (auto _ : state) {
    const int64_t at = i++ % kBlocks * kElements;
    std::memcpy(to.data() + at, from.data() + at, kElements * 4);
    benchmark::ClobberMemory();
  }
  SetBytes(state);
}
BENCHMARK(BM_Memcpy_1MiB);

// One worker pushes the blocks in turn; pieces of 50 KiB, as gRPC brings them.
void Push(benchmark::State& state, const std::string& optimizer,
          const std::string& update, bool held) {
  StoreTester ps(Job(optimizer, update));
  std::vector<Payload> payloads;
  for (int b = 0; b < kBlocks; ++b) {
    payloads.push_back(
        MakePayload(std::vector<float>(kElements, 1.0f), 50 * 1024 + 3));
  }
  int64_t i = 0;
  for (auto _ : state) {
    const int block = static_cast<int>(i % kBlocks);
    const auto item = static_cast<uint64_t>(i / kBlocks);
    ++i;
    const PulledBlock pulled = held ? ps.Latest(block) : PulledBlock();
    const auto receipt =
        ps.store->Push(ps.Chunk(0, item, block, item), payloads[block]);
    if (!receipt.ok()) {
      state.SkipWithError(receipt.status().ToString().c_str());
      break;
    }
  }
  SetBytes(state);
}

void BM_Push_AsyncSgd(benchmark::State& state) {
  Push(state, "sgd {}", "async {}", false);
}
BENCHMARK(BM_Push_AsyncSgd);

void BM_Push_AsyncSgdWhileAPullHoldsTheBlock(benchmark::State& state) {
  Push(state, "sgd {}", "async {}", true);
}
BENCHMARK(BM_Push_AsyncSgdWhileAPullHoldsTheBlock);

void BM_Push_AsyncAdam(benchmark::State& state) {
  Push(state, "adam {}", "async {}", false);
}
BENCHMARK(BM_Push_AsyncAdam);

void BM_Push_SyncSgdOneContribution(benchmark::State& state) {
  Push(state, "sgd {}", "sync { contributions: 1 }", false);
}
BENCHMARK(BM_Push_SyncSgdOneContribution);

void BM_Pull_1MiB(benchmark::State& state) {
  StoreTester ps(Job("sgd {}", "async {}"));
  int block = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(ps.Latest(block++ % kBlocks));
  }
}
BENCHMARK(BM_Pull_1MiB);

}  // namespace
}  // namespace weir

BENCHMARK_MAIN();
