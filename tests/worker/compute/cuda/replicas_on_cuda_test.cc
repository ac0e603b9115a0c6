// Replicas on emulated GPUs: the same steps as one network on the CPU, whatever
// order the devices' streams take, by copies between the devices and by a fake
// NCCL.
#include <algorithm>
#include <span>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/compute/cuda/emulator/fake_nccl.h"
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

using cuda::CudaBackend;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using weir_emulator::CountNccl;

struct Pair {
  std::unique_ptr<NetworkTester> cpu;
  std::unique_ptr<ReplicasTester> cuda;
};

CudaBackend::Options Copies() {
  CudaBackend::Options options;
  options.nccl_library = cuda::kNoNccl;
  return options;
}
CudaBackend::Options Nccl() {
  CudaBackend::Options options;
  options.nccl = &weir_emulator::FakeNccl();
  return options;
}

Pair Make(int devices, uint64_t seed, CudaBackend::Options options = Copies()) {
  weir_emulator::Configure(
      {.devices = devices, .bytes_per_device = 64 << 20, .seed = seed});
  weir_emulator::ResetNccl();
  ReplicasTester::Backends backends;
  for (int d = 0; d < devices; ++d) {
    options.device = d;
    backends.push_back(CudaBackend::Create(options).value());
  }
  Pair pair;
  pair.cpu = NetworkTester::Create(kPlain, kShape).value();
  pair.cuda = ReplicasTester::Create(kPlain, kShape, std::move(backends),
                                     pair.cpu.get())
                  .value();
  return pair;
}

struct Way {
  const char* name;
  CudaBackend::Options (*options)();
};
class ReplicasOnCuda : public testing::TestWithParam<Way> {
 protected:
  static Pair Make(int devices, uint64_t seed) {
    return weir::Make(devices, seed, GetParam().options());
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, ReplicasOnCuda,
                         testing::Values(Way{"Copies", &Copies},
                                         Way{"Nccl", &Nccl}),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

// Values come late and are overwritten as soon as their gradient is out; each
// step has others, so that one which read old ones shows.
TEST_P(ReplicasOnCuda, StepAsOneNetworkWhateverOrderStreamsTake) {
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
        // Some steps find their batch there, a part on each device.
        if (step % 2 == 1) {
          ASSERT_TRUE(
              cuda->replicas().SendAhead(cpu->features().data(), rows).ok());
        }
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

TEST_P(ReplicasOnCuda, LeavesDevicesIdleWithoutRowsForThem) {
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
  EXPECT_THAT(runs, Each(runs[0]));
}

TEST_P(ReplicasOnCuda, TakesValuesOnEveryDevice) {
  const auto [cpu, cuda] = Make(3, 1);
  ASSERT_TRUE(
      cuda->replicas().Bind(cpu->layout(), nullptr, cuda->gradient(0)).ok());
  StepHooks hooks;
  // By names of their own: clang's lambdas take no bindings.
  hooks.before_layer_parameters = [tester = cuda.get(),
                                   layout = &cpu->layout()](int v) {
    const std::span<const char> values(
        reinterpret_cast<const char*>(tester->parameter(v)),
        tester->variables()[v].elements() * sizeof(float));
    return tester->replicas().StoreValues(layout->flat_begin(v), {&values, 1});
  };
  for (int step = 0; step < 3; ++step) {
    cpu->MakeBatch(step, kRows);
    ASSERT_TRUE(cpu->Step().ok());
    ASSERT_TRUE(cuda->Step(cpu.get(), kRows, 1, hooks).ok());
    EXPECT_LT(GradientError(cuda.get(), cpu.get()), 1e-5);
  }
}

TEST_P(ReplicasOnCuda, AllocatesNothingAfterTheSecondStep) {
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

TEST_P(ReplicasOnCuda, GivesEverythingBack) {
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
  EXPECT_EQ(CountNccl().open, 0);
}

// A hook that ends a step, then another step at once.
TEST_P(ReplicasOnCuda, BeginsAnewAfterAStepThatAHookEnded) {
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

// A step sends the next batch ahead, and then that is never asked for. Another
// one, of another slot perhaps, comes to lie at its address.
TEST_P(ReplicasOnCuda, ForgetWhatWasSentAheadOfAStepThatNeverCame) {
  for (const int devices : {1, 2}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(testing::Message() << devices << " devices, " << seed);
      const bool ends = seed % 2 == 0;  // by a hook, else well
      const auto pair = Make(devices, seed);
      NetworkTester& cpu = *pair.cpu;
      ReplicasTester& cuda = *pair.cuda;
      cpu.MakeBatch(9, kRows);
      std::vector<float> next = cpu.features();
      StepHooks hooks;
      hooks.gradient_ready = [&](int variable) -> absl::Status {
        if (variable + 1 < std::ssize(cuda.variables())) {
          return absl::OkStatus();
        }
        EXPECT_TRUE(cuda.replicas().SendAhead(next.data(), kRows).ok());
        return ends ? absl::CancelledError("stop") : absl::OkStatus();
      };
      // One device captures its second step.
      for (int step = 0; step < 3; ++step) {
        cpu.MakeBatch(step, kRows);
        const auto result =
            cuda.Step(&cpu, kRows, 1, step < 2 ? StepHooks() : hooks);
        EXPECT_EQ(result.ok(), step < 2 || !ends) << result.status();
      }
      if (!ends) {
        cuda.replicas().Reset();
      }
      // So the memory of batches may go.
      EXPECT_EQ(weir_emulator::Counts().pending, 0);
      cpu.MakeBatch(5, kRows);
      std::copy(cpu.features().begin(), cpu.features().end(), next.begin());
      ASSERT_TRUE(cpu.Step().ok());
      const auto result = cuda.replicas().TrainStep(
          next.data(), cpu.labels().data(), kRows, 1, {});
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_LT(GradientError(&cuda, &cpu), 1e-5);
    }
  }
}

TEST_P(ReplicasOnCuda, HandsOutNothingAfterAFailedKernel) {
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
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("cuda:0"));
}

// The root first.
struct Sum {
  std::vector<int> devices;
  CudaBackend::Options (*options)();
  int64_t nccl_sums;
};

TEST(ReplicasOnCudaTest, SumsWithPeersBehindAllDevicesWork) {
  constexpr int64_t kCount = 100;
  for (const Sum& sum : {Sum{{1, 0}, &Copies, 0}, Sum{{1, 0}, &Nccl, 2},
                         Sum{{2, 0, 1}, &Copies, 0}, Sum{{2, 0, 1}, &Nccl, 2},
                         Sum{{0, 0}, &Nccl, 0}, Sum{{1, 0, 1}, &Nccl, 0}}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      weir_emulator::Configure({.devices = 3, .seed = seed});
      weir_emulator::ResetNccl();
      std::vector<std::unique_ptr<Backend>> backends;
      std::vector<float*> x;
      std::vector<float> host(kCount, 1.0f);
      for (const int device : sum.devices) {
        CudaBackend::Options options = sum.options();
        options.device = device;
        backends.push_back(CudaBackend::Create(options).value());
        x.push_back(backends.back()->MirrorHost(host.data(), kCount).value());
      }
      std::vector<Backend::PeerTerm> terms;
      for (size_t i = 0; i < backends.size(); ++i) {
        Backend& backend = *backends[i];
        backend.Upload(x[i], host.data(), kCount);
        for (size_t n = 0; n <= i; ++n) {
          backend.Run(op::Add{kCount, x[i], x[i], x[i]});  // 2, 4, 8
        }
        if (i > 0) {
          terms.push_back({.peer = &backend, .x = x[i], .weight = 0.25f});
        }
      }
      Backend& own = *backends[0];
      const float expected = terms.size() == 1 ? 2.0f : 4.0f;
      std::vector<float> first(kCount);
      std::vector<float> second(kCount);
      own.ReduceFromPeers(kCount, 0.5f, x[0], terms);
      own.Download(first.data(), x[0], kCount);
      for (const auto& backend : backends) {
        backend->Wait(backend->Mark());
      }
      for (size_t i = 1; i < backends.size(); ++i) {
        backends[i]->Upload(x[i], host.data(), kCount);
        terms[i - 1].weight = 3.0f;
      }
      own.ReduceFromPeers(kCount, 2.0f, x[0], terms);
      own.Download(second.data(), x[0], kCount);
      own.Wait(own.Mark());
      EXPECT_THAT(first, Each(expected)) << seed;
      EXPECT_THAT(second,
                  Each(2 * expected + 3 * static_cast<float>(terms.size())))
          << seed;
      EXPECT_EQ(CountNccl().sums, sum.nccl_sums);
      for (const auto& backend : backends) {
        EXPECT_TRUE(backend->TakeStatus().ok());
      }
    }
  }
}

// ---------------------------------------------------------------------- NCCL

TEST(ReplicasOnCudaTest, SumEachVariableOnceByNcclAndMakeItsCommunicatorsOnce) {
  for (const int devices : {2, 3}) {
    const auto [cpu, cuda] = Make(devices, 1, Nccl());
    const auto variables = static_cast<int64_t>(cuda->variables().size());
    EXPECT_TRUE(CountNccl().cliques.empty());
    for (int step = 0; step < 20; ++step) {
      cpu->MakeBatch(step, kRows);
      ASSERT_TRUE(cpu->Step().ok());
      ASSERT_TRUE(cuda->Step(cpu.get(), kRows).ok());
      EXPECT_LT(GradientError(cuda.get(), cpu.get()), 1e-5);
      EXPECT_EQ(CountNccl().sums, variables * (step + 1));
    }
    EXPECT_EQ(CountNccl().open, devices);
    const std::vector<int> all = {0, 1, 2};
    EXPECT_THAT(CountNccl().cliques, ElementsAre(std::vector<int>(
                                         all.begin(), all.begin() + devices)));
  }
}

std::vector<float> Gradients(const Pair& pair) {
  pair.cpu->MakeBatch(1, kRows);
  EXPECT_TRUE(pair.cuda->Step(pair.cpu.get(), kRows).ok());
  std::vector<float> gradients;
  const auto& variables = pair.cuda->variables();
  for (size_t v = 0; v < variables.size(); ++v) {
    const float* const begin = pair.cuda->gradient(static_cast<int>(v));
    gradients.insert(gradients.end(), begin, begin + variables[v].elements());
  }
  return gradients;
}

TEST(ReplicasOnCudaTest, KeepDeterministicJobsAwayFromNccl) {
  const std::vector<float> expected = Gradients(Make(3, 1));
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    CudaBackend::Options options = Nccl();
    options.deterministic = true;
    EXPECT_EQ(Gradients(Make(3, seed, options)), expected);
    EXPECT_TRUE(CountNccl().cliques.empty());
  }
  // What they are spared.
  std::vector<std::vector<float>> runs;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    runs.push_back(Gradients(Make(3, seed, Nccl())));
  }
  EXPECT_THAT(runs, testing::Not(Each(runs[0])));
}

TEST(ReplicasOnCudaTest, CopyWhereNcclIsAbsentOrDoesNotStart) {
  CudaBackend::Options absent;
  absent.nccl_library = "libno_such_nccl.so.2";
  CudaBackend::Options no_nccl;
  no_nccl.nccl_library = "libm.so.6";
  const std::vector<float> expected = Gradients(Make(3, 1));
  for (const auto& options : {absent, no_nccl, Nccl()}) {
    const Pair pair = Make(3, 1, options);
    weir_emulator::FailNext(cudaErrorInvalidValue, "ncclCommInitAll");
    EXPECT_EQ(Gradients(pair), expected);
    // It is not tried again.
    EXPECT_EQ(Gradients(pair), expected);
    EXPECT_TRUE(CountNccl().cliques.empty());
  }
}

TEST(ReplicasOnCudaTest, NameTheCallOfNcclThatFailed) {
  for (const char* function :
       {"ncclGroupStart", "ncclReduce", "ncclGroupEnd"}) {
    const auto [cpu, cuda] = Make(3, 1, Nccl());
    cpu->MakeBatch(1, kRows);
    ASSERT_TRUE(cuda->Step(cpu.get(), kRows).ok());
    int handed_out = 0;
    StepHooks hooks;
    hooks.gradient_ready = [&](int) {
      ++handed_out;
      return absl::OkStatus();
    };
    weir_emulator::FailNext(cudaErrorInvalidValue, function);
    const absl::Status status = cuda->Step(cpu.get(), kRows, 1, hooks).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), HasSubstr(function));
    EXPECT_EQ(handed_out, 0);
    EXPECT_EQ(CountNccl().open, 0);
  }
}

// The last devices have nothing to do in small batches: another list.
TEST(ReplicasOnCudaTest, HaveCommunicatorsForEachListOfDevices) {
  const auto [cpu, cuda] = Make(3, 1, Nccl());
  for (const int64_t rows : {7, 2, 7, 2, 1}) {
    cpu->MakeBatch(1, rows);
    ASSERT_TRUE(cuda->Step(cpu.get(), rows).ok());
  }
  EXPECT_THAT(CountNccl().cliques,
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(0, 1)));
}

}  // namespace
}  // namespace weir
