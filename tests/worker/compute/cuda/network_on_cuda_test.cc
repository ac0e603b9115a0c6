// Networks on the CUDA backend, which runs on the emulator: the same steps as
// on the CPU, uncaptured and captured, whatever order the streams take.
#include <algorithm>
#include <span>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/data/fake_dataset.h"
#include "tests/worker/model/network_tester.h"
#include "weir_cuda_emulator.h"
#include "worker/compute/cuda/cuda_backend.h"
#include "worker/data/batches.h"

namespace weir {
namespace {

constexpr char kConvNet[] = R"(
  layer { name: "conv"
          conv2d { filters: 4 kernel_size: 3 padding: 1 no_bias: true } }
  layer { name: "norm" batch_norm {} }
  layer { name: "act" relu {} }
  layer { name: "pool" max_pool { size: 2 } }
  layer { name: "drop" dropout { rate: 0.3 } }
  layer { name: "flat" flatten {} }
  layer { name: "hidden" dense { units: 9 } }
  layer { name: "squash" tanh {} }
  layer { name: "sum" input: "squash" input: "hidden" add {} }
  layer { name: "logits" dense { units: 3 } }
  loss { softmax_cross_entropy {} })";
const std::vector<int64_t> kShape = {2, 6, 6};
constexpr int64_t kRows = 5;

std::unique_ptr<NetworkTester> OnCuda(uint64_t seed,
                                      Precision precision = Precision::kFp32) {
  weir_emulator::Configure({.seed = seed});
  return NetworkTester::Create(
             kConvNet, kShape,
             cuda::CudaBackend::Create({.precision = precision}).value())
      .value();
}

std::unique_ptr<NetworkTester> OnCpu() {
  return NetworkTester::Create(kConvNet, kShape).value();
}

// Moves the values as a ps would, so that a step that read old ones shows.
void Descend(NetworkTester* tester) {
  for (const VariableSpec& variable : tester->network().variables()) {
    for (int64_t i = 0; i < variable.elements(); ++i) {
      tester->parameter(variable.name)[i] -=
          0.1f * tester->gradient(variable.name)[i];
    }
  }
}

void ExpectSameGradients(NetworkTester* actual, NetworkTester* expected) {
  for (const VariableSpec& variable : expected->network().variables()) {
    EXPECT_LT(
        RelativeError(actual->gradient(variable.name),
                      expected->gradient(variable.name), variable.elements()),
        1e-5)
        << variable.name;
  }
}

// Steps 0 and 3 run as they come, since their shape is new; the step after each
// is captured, the last one is a replay.
TEST(NetworkOnCudaTest, StepsAsOnTheCpuWhateverOrderStreamsTake) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    const auto cuda = OnCuda(seed);
    const auto cpu = OnCpu();
    for (int step = 0; step < 6; ++step) {
      SCOPED_TRACE(step);
      const int64_t rows = step < 3 ? kRows : kRows + 2;
      cuda->MakeBatch(step, rows);
      cpu->MakeBatch(step, rows);
      const auto actual = cuda->Step(10 + step);
      const auto expected = cpu->Step(10 + step);
      ASSERT_TRUE(actual.ok()) << actual.status();
      EXPECT_NEAR(actual->loss, expected->loss, 1e-5);
      EXPECT_EQ(actual->correct, expected->correct);
      ExpectSameGradients(cuda.get(), cpu.get());
      Descend(cuda.get());
      Descend(cpu.get());
    }
  }
}

// A batch as floats or as bytes, sent ahead from the gradients of the step
// before or not: the same bits, whatever order the streams take.
TEST(NetworkOnCudaTest, TakesBytesAndWhatWasSentAheadAsFloatsOfTheStep) {
  constexpr int kSteps = 5;
  std::vector<float> table(256);
  for (int b = 0; b < 256; ++b) {
    table[b] = static_cast<float>(b) / 255.0f - 0.5f;
  }
  const auto rows_of = [](int step) { return step == 3 ? kRows - 1 : kRows; };
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<std::vector<float>> floats;
  for (int step = 0; step < kSteps; ++step) {
    const int64_t count = rows_of(step) * 2 * 6 * 6;
    bytes.emplace_back(count + 3);  // as Features wants
    floats.emplace_back(count);
    const std::vector<float> drawn = RandomFloats(step, count, 0, 256);
    for (int64_t i = 0; i < count; ++i) {
      bytes[step][i] = static_cast<uint8_t>(drawn[i]);
      floats[step][i] = table[bytes[step][i]];
    }
  }
  enum class How { kFloats, kFloatsAhead, kBytes, kBytesAhead, kOtherAhead };
  const auto gradients_of = [&](How how, uint64_t seed) {
    const auto cuda = OnCuda(seed);
    const auto features = [&](int step) {
      return how == How::kFloats || how == How::kFloatsAhead
                 ? Features(floats[step].data())
                 : Features(bytes[step].data(), table.data());
    };
    std::vector<float> all;
    for (int step = 0; step < kSteps; ++step) {
      cuda->MakeBatch(step, rows_of(step));  // labels
      bool sent = how == How::kFloats || how == How::kBytes;
      StepHooks hooks;
      hooks.gradient_ready = [&](int) -> absl::Status {
        // Another batch than the next one comes; it is sent again.
        const int next = how == How::kOtherAhead ? step : step + 1;
        if (std::exchange(sent, true) || next == kSteps) {
          return absl::OkStatus();
        }
        return cuda->network().SendAhead(features(next), rows_of(next));
      };
      const auto result = cuda->network().TrainStep(
          features(step), cuda->labels().data(), rows_of(step), step, hooks);
      EXPECT_TRUE(result.ok()) << result.status();
      for (const VariableSpec& variable : cuda->network().variables()) {
        const float* const begin = cuda->gradient(variable.name);
        all.insert(all.end(), begin, begin + variable.elements());
      }
      Descend(cuda.get());
    }
    return all;
  };
  const std::vector<float> expected = gradients_of(How::kFloats, 1);
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    for (const How how : {How::kFloats, How::kFloatsAhead, How::kBytes,
                          How::kBytesAhead, How::kOtherAhead}) {
      EXPECT_EQ(gradients_of(how, seed), expected)
          << "seed " << seed << ", way " << static_cast<int>(how);
    }
  }
}

// 10 bytes are copied as 12, which must be locked in host memory, too.
TEST(NetworkOnCudaTest, TakesBytesOfBatchesThatAreNoWholeFloats) {
  constexpr char kModel[] = R"(
    layer { name: "y" dense { units: 1 } }
    loss { mean_squared_error {} })";
  weir_emulator::Configure({});
  auto backend = cuda::CudaBackend::Create({}).value();
  const FakeDataset dataset(20);
  Batches::Options options;
  options.batch_size = kRows;
  options.epochs = 1.0;
  options.as_bytes = true;
  options.pages = backend->host_pages();
  const auto batches = Batches::Create(options, &dataset).value();
  std::vector<float> table(256);
  for (int b = 0; b < 256; ++b) {
    table[b] = static_cast<float>(b) / 255.0f;
  }
  const auto cuda =
      NetworkTester::Create(kModel, {2}, std::move(backend)).value();
  const auto cpu = NetworkTester::Create(kModel, {2}).value();
  for (const bool ahead : {false, true}) {
    Batch batch;
    ASSERT_TRUE(batches->Make(0, &batch).ok());
    ASSERT_EQ(batch.bytes.size(), 10u);
    std::vector<float> floats;
    for (const uint8_t byte : batch.bytes) {
      floats.push_back(table[byte]);
    }
    const Features features(batch.bytes.data(), table.data());
    if (ahead) {
      ASSERT_TRUE(cuda->network().SendAhead(features, kRows).ok());
    }
    const auto actual =
        cuda->network().TrainStep(features, batch.labels.data(), kRows, 1, {});
    ASSERT_TRUE(actual.ok()) << actual.status();
    ASSERT_TRUE(cpu->network()
                    .TrainStep(floats.data(), batch.labels.data(), kRows, 1, {})
                    .ok());
    ExpectSameGradients(cuda.get(), cpu.get());
  }
}

// Devices refuse a pitch of 2 GiB; here it is 1 KiB, and the batch is larger.
TEST(NetworkOnCudaTest, TakesABatchAheadThatNoPitchCanHold) {
  weir_emulator::Configure({.pitch_max = 1 << 10});
  const auto cuda = NetworkTester::Create(kConvNet, kShape,
                                          cuda::CudaBackend::Create({}).value())
                        .value();
  const auto cpu = OnCpu();
  cuda->MakeBatch(1, kRows);
  cpu->MakeBatch(1, kRows);
  ASSERT_TRUE(cuda->network().SendAhead(cuda->features().data(), kRows).ok());
  const auto actual = cuda->Step();
  ASSERT_TRUE(actual.ok()) << actual.status();
  ASSERT_TRUE(cpu->Step().ok());
  ExpectSameGradients(cuda.get(), cpu.get());
}

TEST(NetworkOnCudaTest, TheCpuTakesFloatsAlone) {
  const auto cpu = OnCpu();
  cpu->MakeBatch(1, kRows);
  const uint8_t byte = 0;
  const float table[256] = {};
  const auto result = cpu->network().TrainStep(
      Features(&byte, table), cpu->labels().data(), kRows, 1, {});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(cpu->network().SendAhead(cpu->features().data(), kRows).ok());
  EXPECT_TRUE(cpu->Step().ok());
}

// Values come to the host one by one, are read late, and are overwritten as
// soon as the step has handed out the variable's gradient.
TEST(NetworkOnCudaTest, ReadsValuesWhenTheyAreThereAndHandsOutWholeGradients) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    const auto cuda = OnCuda(seed);
    const auto cpu = OnCpu();
    const auto& variables = cuda->network().variables();
    for (int step = 0; step < 4; ++step) {
      SCOPED_TRACE(step);
      cuda->MakeBatch(step, kRows);
      cpu->MakeBatch(step, kRows);
      ASSERT_TRUE(cpu->Step(step).ok());
      std::vector<std::vector<float>> values;
      for (const VariableSpec& variable : variables) {
        float* const begin = cuda->parameter(variable.name);
        values.emplace_back(begin, begin + variable.elements());
        if (variable.kind == VariableKind::kTrained) {
          std::fill_n(begin, variable.elements(), -7.0f);
        }
        std::fill_n(cuda->gradient(variable.name), variable.elements(), -9.0f);
      }
      StepHooks hooks;
      hooks.before_layer_parameters = [&](int v) {
        std::copy(values[v].begin(), values[v].end(),
                  cuda->parameter(variables[v].name));
        return absl::OkStatus();
      };
      std::vector<int> ready;
      hooks.gradient_ready = [&](int v) {
        ready.push_back(v);
        const std::string& name = variables[v].name;
        EXPECT_LT(RelativeError(cuda->gradient(name), cpu->gradient(name),
                                variables[v].elements()),
                  1e-5)
            << name;
        return absl::OkStatus();
      };
      ASSERT_TRUE(cuda->Step(step, hooks).ok());
      EXPECT_EQ(ready.size(), variables.size());
      EXPECT_TRUE(std::is_sorted(ready.rbegin(), ready.rend()));
    }
  }
}

// Values that other threads send to the device, the next ones as soon as the
// step has handed out the variable's gradient: the same bits as from the host.
TEST(NetworkOnCudaTest, TakesValuesThatNeverWereInHostMemory) {
  const auto gradients_of = [](bool stored, uint64_t seed,
                               Precision precision) {
    const auto cuda = OnCuda(seed, precision);
    Network& network = cuda->network();
    // Two pieces, of which one ends inside a float, from another thread.
    const auto store = [&](int v, const std::vector<float>& values) {
      std::thread([&] {
        const std::span<const char> bytes(
            reinterpret_cast<const char*>(values.data()),
            values.size() * sizeof(float));
        const std::span<const char> pieces[] = {bytes.first(3),
                                                bytes.subspan(3)};
        EXPECT_TRUE(
            network.StoreValues(cuda->layout().flat_begin(v), pieces).ok());
      }).join();
    };
    const auto values_of = [&](int v) {
      const VariableSpec& variable = network.variables()[v];
      const float* const begin = cuda->parameter(variable.name);
      return std::vector<float>(begin, begin + variable.elements());
    };
    StepHooks hooks;
    if (stored) {
      EXPECT_TRUE(
          network.Bind(cuda->layout(), nullptr, cuda->gradients()).ok());
      hooks.before_layer_parameters = [&](int v) {
        store(v, values_of(v));
        return absl::OkStatus();
      };
      hooks.gradient_ready = [&](int v) {
        store(v, std::vector<float>(values_of(v).size(), -7.0f));
        return absl::OkStatus();
      };
    }
    std::vector<float> all;
    for (int step = 0; step < 7; ++step) {
      // The first four are not captured, since their rows differ.
      cuda->MakeBatch(step, step < 4 ? kRows + step : kRows);
      EXPECT_TRUE(cuda->Step(step, hooks).ok());
      for (const VariableSpec& variable : network.variables()) {
        const float* const begin = cuda->gradient(variable.name);
        all.insert(all.end(), begin, begin + variable.elements());
      }
      Descend(cuda.get());
    }
    return all;
  };
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const std::vector<float> expected = gradients_of(false, 1, precision);
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      EXPECT_EQ(gradients_of(true, seed, precision), expected) << seed;
    }
  }
}

TEST(NetworkOnCudaTest, GivesTheSameBitsTwiceCapturedOrNot) {
  std::vector<std::vector<float>> runs;
  for (const uint64_t seed : {1, 2}) {
    const auto cuda = OnCuda(seed);
    for (int step = 0; step < 4; ++step) {
      cuda->MakeBatch(1, kRows);
      ASSERT_TRUE(cuda->Step(1).ok());
      float* const begin = cuda->gradient("conv/kernel");
      runs.emplace_back(begin, begin + cuda->elements("conv/kernel"));
    }
  }
  EXPECT_THAT(runs, testing::Each(runs[0]));
}

// The second step is captured; where CUDA refuses that it runs as it comes. To
// memory that is not pinned no captured step can copy.
TEST(NetworkOnCudaTest, GoesOnWithoutACaptureWhereCudaRefusesIt) {
  for (const char* const call :
       {"cudaStreamBeginCapture", "cudaGraphInstantiate", "cudaHostRegister"}) {
    SCOPED_TRACE(call);
    weir_emulator::Configure({});
    auto backend = cuda::CudaBackend::Create({}).value();
    weir_emulator::FailNext(cudaErrorMemoryAllocation, call);
    weir_emulator::FailNext(cudaErrorMemoryAllocation, call);
    const auto cuda =
        NetworkTester::Create(kConvNet, kShape, std::move(backend)).value();
    const auto cpu = OnCpu();
    for (int step = 0; step < 4; ++step) {
      cuda->MakeBatch(step, kRows);
      cpu->MakeBatch(step, kRows);
      const auto actual = cuda->Step(step);
      ASSERT_TRUE(actual.ok()) << actual.status();
      ASSERT_TRUE(cpu->Step(step).ok());
      ExpectSameGradients(cuda.get(), cpu.get());
    }
    EXPECT_EQ(weir_emulator::Counts().graphs, 0);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
}

// The upload of the batch that a captured step would read.
TEST(NetworkOnCudaTest, TakesNoFailureBeforeACaptureForTheCaptures) {
  const auto cuda = OnCuda(1);
  cuda->MakeBatch(1, kRows);
  ASSERT_TRUE(cuda->Step().ok());
  weir_emulator::FailNext(cudaErrorInvalidValue, "cudaMemcpyAsync");
  const absl::Status status = cuda->Step().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("copy to the device"));
}

// Sums of rows grow a scratch that the captured step uses, as a step of other
// rows may.
TEST(NetworkOnCudaTest, CapturesAgainAfterAStepOfOtherRows) {
  weir_emulator::Configure({});
  auto owned = cuda::CudaBackend::Create({}).value();
  Backend& backend = *owned;
  const auto cuda =
      NetworkTester::Create(kConvNet, kShape, std::move(owned)).value();
  const auto cpu = OnCpu();
  constexpr int64_t kWidth = 50000;
  float* const x = backend.Allocate(2 * kWidth).value();
  for (const int64_t rows : {kRows, kRows, kRows - 1, kRows, kRows}) {
    cuda->MakeBatch(1, rows);
    cpu->MakeBatch(1, rows);
    const auto actual = cuda->Step();
    ASSERT_TRUE(actual.ok()) << actual.status();
    ASSERT_TRUE(cpu->Step().ok());
    ExpectSameGradients(cuda.get(), cpu.get());
    if (rows < kRows) {
      const int64_t calls = weir_emulator::Counts().malloc_calls;
      backend.Run(op::SumRows{1, kWidth, x, x + kWidth});
      backend.Wait(backend.Mark());
      EXPECT_GT(weir_emulator::Counts().malloc_calls, calls);
    }
  }
  backend.Release(x);
}

// Batches of all sizes, of no ids too; what a captured step would keep changes.
TEST(NetworkOnCudaTest, ReadsTablesAsOnTheCpu) {
  constexpr char kModel[] = R"(
    layer { name: "bottom" dense { units: 4 } }
    layer { name: "e" embedding_bag { table: "t" } }
    layer { name: "m" embedding_bag { table: "t" feature: "B" pooling: MAX } }
    layer { name: "w" embedding_bag { table: "u" pooling: MEAN } }
    layer { name: "fw" flatten {} }
    layer { name: "dots" input: "bottom" input: "e" input: "m"
            dot_interaction {} }
    layer { name: "fm" input: "e" factorization_machine {} }
    layer { name: "cross" input: "bottom" cross { layers: 2 } }
    layer { name: "all" input: "dots" input: "fm" input: "cross" input: "fw"
            concat {} }
    layer { name: "y" dense { units: 1 } }
    loss { sigmoid_cross_entropy {} })";
  const SparseSpec sparse = MakeSparseSpec({"t:4", "u:1"}, {"A", "B", "C"});
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    weir_emulator::Configure({.seed = seed});
    const auto cuda =
        NetworkTester::Create(kModel, {3},
                              cuda::CudaBackend::Create({}).value(), sparse)
            .value();
    const auto cpu =
        NetworkTester::Create(kModel, {3}, nullptr, sparse).value();
    const int64_t sizes[] = {4, 4, 4, 1, 9, 30, 9};
    for (int step = 0; step < 7; ++step) {
      SCOPED_TRACE(step);
      for (NetworkTester* tester : {cuda.get(), cpu.get()}) {
        tester->MakeBatch(step, sizes[step]);
        if (step == 2) {
          tester->SetBags({.features = std::vector<SparseFeature>(
                               3, {{0, 0, 0, 0, 0}, {}, {}})},
                          4);
        }
      }
      StepHooks hooks;
      std::vector<int> ready;
      hooks.table_gradient_ready = [&](int t) {
        ready.push_back(t);
        const std::vector<float>& actual = cuda->tables()[t].gradients;
        const std::vector<float>& expected = cpu->tables()[t].gradients;
        EXPECT_LT(RelativeError(actual.data(), expected.data(),
                                static_cast<int64_t>(expected.size())),
                  1e-5);
        return absl::OkStatus();
      };
      const auto expected = cpu->Step();
      const auto actual = cuda->Step(1, hooks);
      ASSERT_TRUE(actual.ok()) << actual.status();
      EXPECT_NEAR(actual->loss, expected->loss, 1e-5);
      ExpectSameGradients(cuda.get(), cpu.get());
      EXPECT_THAT(ready, testing::ElementsAre(1, 0));
      const auto outputs = cuda->network().Evaluate(
          cuda->features().data(), nullptr, sizes[step], cuda->table_inputs());
      ASSERT_TRUE(outputs.ok()) << outputs.status();
    }
  }
}

TEST(NetworkOnCudaTest, AllocatesNothingAfterTheSecondStep) {
  const auto cuda = OnCuda(1);
  weir_emulator::Counters before;
  for (int step = 0; step < 20; ++step) {
    cuda->MakeBatch(step, kRows);
    ASSERT_TRUE(cuda->Step(step).ok());
    if (step == 1) {
      before = weir_emulator::Counts();
    }
  }
  const weir_emulator::Counters after = weir_emulator::Counts();
  EXPECT_EQ(after.malloc_calls, before.malloc_calls);
  EXPECT_EQ(after.device_bytes, before.device_bytes);
  EXPECT_EQ(after.pinned_bytes, before.pinned_bytes);
  EXPECT_EQ(after.events, before.events);
  EXPECT_EQ(after.graphs, before.graphs);
}

TEST(NetworkOnCudaTest, GivesEverythingBack) {
  OnCuda(1)->Step().IgnoreError();
  {
    const auto cuda = OnCuda(1);
    for (int step = 0; step < 3; ++step) {
      cuda->MakeBatch(step, kRows);
      ASSERT_TRUE(cuda->Step(step).ok());
    }
  }
  const weir_emulator::Counters after = weir_emulator::Counts();
  EXPECT_EQ(after.device_blocks, 0);
  EXPECT_EQ(after.pinned_bytes, 0);
  EXPECT_EQ(after.streams, 0);
  EXPECT_EQ(after.events, 0);
  EXPECT_EQ(after.graphs, 0);
}

TEST(NetworkOnCudaTest, SaysHowMuchMemoryABatchWouldNeed) {
  const auto cuda = OnCuda(1);
  cuda->MakeBatch(1, 1 << 20);
  const absl::Status status = cuda->Step().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::HasSubstr("bytes asked"),
                             testing::HasSubstr("train.batch_size")));
}

TEST(NetworkOnCudaTest, HandsOutNothingAfterAFailedKernel) {
  const auto cuda = OnCuda(1);
  cuda->MakeBatch(1, kRows);
  ASSERT_TRUE(cuda->Step().ok());
  weir_emulator::FailNext(cudaErrorIllegalAddress, "Launch");
  StepHooks hooks;
  int handed_out = 0;
  hooks.gradient_ready = [&](int) {
    ++handed_out;
    return absl::OkStatus();
  };
  const absl::Status status = cuda->Step(1, hooks).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_EQ(handed_out, 0);
}

}  // namespace
}  // namespace weir
