// Replicas on emulated GPUs: the same steps as one network on the CPU, whatever
// order the devices' streams take.
#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/replicas_tester.h"
#include "weir_cuda_emulator.h"
#include "worker/compute/cuda/cuda_backend.h"

namespace weir {
namespace {

constexpr char kPlain[] = R"(
  layer { name: "conv" conv2d { filters: 4 kernel_size: 3 padding: 1 } }
  layer { name: "act" relu {} }
  layer { name: "pool" max_pool { size: 2 } }
  layer { name: "flat" flatten {} }
  layer { name: "hidden" dense { units: 9 } }
  layer { name: "squash" tanh {} }
  layer { name: "sum" input: "squash" input: "hidden" add {} }
  layer { name: "logits" dense { units: 3 } }
  loss { softmax_cross_entropy {} })";
const std::vector<int64_t> kShape = {2, 6, 6};
constexpr int64_t kRows = 7;

struct Pair {
  std::unique_ptr<NetworkTester> cpu;
  std::unique_ptr<ReplicasTester> cuda;
};

Pair Make(int devices, uint64_t seed, int64_t bytes = 64 << 20) {
  weir_emulator::Configure(
      {.devices = devices, .bytes_per_device = bytes, .seed = seed});
  ReplicasTester::Backends backends;
  for (int d = 0; d < devices; ++d) {
    backends.push_back(cuda::CudaBackend::Create({.device = d}).value());
  }
  Pair pair;
  pair.cpu = NetworkTester::Create(kPlain, kShape).value();
  pair.cuda = ReplicasTester::Create(kPlain, kShape, std::move(backends),
                                     pair.cpu.get())
                  .value();
  return pair;
}

// Values come late and are overwritten as soon as their gradient is out; each
// step has others, so that one which read old ones shows.
TEST(ReplicasOnCudaTest, StepAsOneNetworkWhateverOrderStreamsTake) {
  for (const int devices : {2, 3}) {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE(testing::Message() << devices << " devices, " << seed);
      const auto pair = Make(devices, seed);
      const auto& cpu = pair.cpu;  // clang 14: lambdas take no bindings
      const auto& cuda = pair.cuda;
      const auto& variables = cuda->variables();
      for (int step = 0; step < 4; ++step) {
        const int64_t rows = step == 2 ? kRows + 3 : kRows;
        cpu->MakeBatch(step, rows);
        const StepResult expected = cpu->Step().value();
        StepHooks hooks;
        hooks.before_layer_parameters = [&](int v) {
          std::copy_n(cpu->parameter(variables[v].name),
                      variables[v].elements(), cuda->parameter(v));
          return absl::OkStatus();
        };
        std::vector<int> ready;
        hooks.gradient_ready = [&](int v) {
          ready.push_back(v);
          EXPECT_LT(
              RelativeError(cuda->gradient(v), cpu->gradient(variables[v].name),
                            variables[v].elements()),
              1e-5)
              << variables[v].name << " in step " << step;
          std::fill_n(cuda->parameter(v), variables[v].elements(), -7.0f);
          return absl::OkStatus();
        };
        const auto actual = cuda->Step(cpu.get(), rows, 1, hooks);
        ASSERT_TRUE(actual.ok()) << actual.status();
        EXPECT_NEAR(actual->loss, expected.loss, 1e-5);
        EXPECT_EQ(actual->correct, expected.correct);
        EXPECT_EQ(ready.size(), variables.size());
        EXPECT_TRUE(std::is_sorted(ready.rbegin(), ready.rend()));
        for (const VariableSpec& variable : variables) {
          for (int64_t i = 0; i < variable.elements(); ++i) {
            cpu->parameter(variable.name)[i] -=
                0.1f * cpu->gradient(variable.name)[i];
          }
        }
      }
    }
  }
}

TEST(ReplicasOnCudaTest, LeavesDevicesIdleWithoutRowsForThem) {
  const auto [cpu, cuda] = Make(3, 1);
  for (const int64_t rows : {1, 2, 7, 1, 1, 1, 5}) {
    cpu->MakeBatch(1, rows);
    ASSERT_TRUE(cpu->Step().ok());
    ASSERT_TRUE(cuda->Step(cpu.get(), rows).ok());
    EXPECT_LT(GradientError(cuda.get(), cpu.get()), 1e-5) << rows;
  }
}

TEST(ReplicasOnCudaTest, GivesTheSameBitsWhateverOrderStreamsTake) {
  std::vector<std::vector<float>> runs;
  for (const uint64_t seed : {1, 2, 3}) {
    const auto [cpu, cuda] = Make(3, seed);
    cpu->MakeBatch(1, kRows);
    ASSERT_TRUE(cuda->Step(cpu.get(), kRows).ok());
    runs.emplace_back(cuda->gradient(0), cuda->gradient(0) + 72);
  }
  EXPECT_THAT(runs, testing::Each(runs[0]));
}

TEST(ReplicasOnCudaTest, AllocatesNothingAfterTheSecondStep) {
  const auto [cpu, cuda] = Make(3, 1);
  weir_emulator::Counters before;
  for (int step = 0; step < 20; ++step) {
    cpu->MakeBatch(step, kRows);
    ASSERT_TRUE(cuda->Step(cpu.get(), kRows).ok());
    if (step == 1) {
      before = weir_emulator::Counts();
    }
  }
  const weir_emulator::Counters after = weir_emulator::Counts();
  EXPECT_EQ(after.malloc_calls, before.malloc_calls);
  EXPECT_EQ(after.device_bytes, before.device_bytes);
  EXPECT_EQ(after.pinned_bytes, before.pinned_bytes);
  EXPECT_EQ(after.events, before.events);
  EXPECT_EQ(after.graphs, 0);
}

TEST(ReplicasOnCudaTest, GivesEverythingBack) {
  {
    const auto [cpu, cuda] = Make(3, 1);
    // The values are pinned once, for all devices; and again when rebound.
    const int64_t pinned = weir_emulator::Counts().pinned_bytes;
    ASSERT_TRUE(cuda->replicas()
                    .Bind(cpu->layout(), cuda->parameter(0), cuda->gradient(0))
                    .ok());
    EXPECT_EQ(weir_emulator::Counts().pinned_bytes, pinned);
    cpu->MakeBatch(1, kRows);
    ASSERT_TRUE(cpu->Step().ok());
    ASSERT_TRUE(cuda->Step(cpu.get(), kRows).ok());
    EXPECT_LT(GradientError(cuda.get(), cpu.get()), 1e-5);
  }
  const weir_emulator::Counters after = weir_emulator::Counts();
  EXPECT_EQ(after.device_blocks, 0);
  EXPECT_EQ(after.pinned_bytes, 0);
  EXPECT_EQ(after.streams, 0);
  EXPECT_EQ(after.events, 0);
}

// A hook that ends a step, then another step at once.
TEST(ReplicasOnCudaTest, BeginsAnewAfterAStepThatAHookEnded) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const auto [cpu, cuda] = Make(2, seed);
    StepHooks hooks;
    hooks.gradient_ready = [](int) { return absl::CancelledError("stop"); };
    cpu->MakeBatch(1, kRows);
    EXPECT_EQ(cuda->Step(cpu.get(), kRows, 1, hooks).status(),
              absl::CancelledError("stop"));
    cpu->MakeBatch(2, kRows);
    ASSERT_TRUE(cpu->Step().ok());
    ASSERT_TRUE(cuda->Step(cpu.get(), kRows).ok());
    EXPECT_LT(GradientError(cuda.get(), cpu.get()), 1e-5);
  }
}

TEST(ReplicasOnCudaTest, HandsOutNothingAfterAFailedKernel) {
  const auto [cpu, cuda] = Make(2, 1);
  cpu->MakeBatch(1, kRows);
  ASSERT_TRUE(cuda->Step(cpu.get(), kRows).ok());
  weir_emulator::FailNext(cudaErrorIllegalAddress, "Launch");
  StepHooks hooks;
  int handed_out = 0;
  hooks.gradient_ready = [&](int) {
    ++handed_out;
    return absl::OkStatus();
  };
  const absl::Status status = cuda->Step(cpu.get(), kRows, 1, hooks).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_EQ(handed_out, 0);
}

TEST(ReplicasOnCudaTest, SaysWhichDeviceHasNoMemory) {
  const auto [cpu, cuda] = Make(2, 1);
  cpu->MakeBatch(1, 1 << 18);
  const absl::Status status = cuda->Step(cpu.get(), 1 << 18).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("cuda:0"));
}

TEST(ReplicasOnCudaTest, SumsWithAPeerBehindBothDevicesWork) {
  constexpr int64_t kCount = 1000;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    weir_emulator::Configure({.devices = 2, .seed = seed});
    const auto own = cuda::CudaBackend::Create({.device = 1}).value();
    const auto peer = cuda::CudaBackend::Create({.device = 0}).value();
    std::vector<float> host(kCount, 1.0f);
    std::vector<float> sum(kCount);
    float* const y = own->MirrorHost(host.data(), kCount).value();
    float* const x = peer->MirrorHost(host.data(), kCount).value();
    own->Upload(y, host.data(), kCount);
    peer->Upload(x, host.data(), kCount);
    own->Add(kCount, y, y, y);  // 2
    for (int i = 0; i < 3; ++i) {
      peer->Add(kCount, x, x, x);  // 8
    }
    own->AddFromPeer(kCount, 0.25f, peer.get(), x, 0.5f, y);  // 3
    own->AddFromPeer(kCount, 1.0f, peer.get(), x, 1.0f, y);   // 11
    own->Download(sum.data(), y, kCount);
    own->Wait(own->Mark());
    EXPECT_THAT(sum, testing::Each(11.0f)) << seed;
    EXPECT_TRUE(own->TakeStatus().ok());
    EXPECT_TRUE(peer->TakeStatus().ok());
  }
}

}  // namespace
}  // namespace weir
