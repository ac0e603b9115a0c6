// Convolutions by cuDNN, a fake one on the emulator: the contract, which
// engines are taken, what happens where there is none, capture.
#include "worker/compute/cuda/cudnn_convolution.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/compute/backend_contract.h"
#include "tests/worker/compute/cuda/emulator/fake_cudnn.h"
#include "tests/worker/model/network_tester.h"
#include "weir_cuda_emulator.h"
#include "worker/compute/cuda/cuda_backend.h"

namespace weir::cuda {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using weir_emulator::ConfigureCudnn;
using weir_emulator::CountCudnn;
using weir_emulator::FakeEngine;

FakeEngine Engine(int64_t index, int64_t workspace_bytes = 0) {
  return {.index = index, .workspace_bytes = workspace_bytes};
}
FakeEngine Slow(int64_t index, int operations) {
  return {.index = index, .operations = operations};
}
FakeEngine Noted(int64_t index, int note) {
  return {.index = index, .notes = {note}, .workspace_bytes = 256};
}
FakeEngine AnyOrder(int64_t index) {
  return Noted(index, kCudnnNondeterministic);
}
FakeEngine Unplanned(int64_t index) { return {.index = index, .plans = false}; }
FakeEngine Failing(int64_t index) { return {.index = index, .runs = false}; }

std::unique_ptr<CudaBackend> MakeBackend(Precision precision,
                                         bool deterministic,
                                         const std::string& choices_file = "") {
  static uint64_t seed = 0;
  weir_emulator::Configure({.seed = ++seed});
  return CudaBackend::Create({.precision = precision,
                              .column_bytes_max = 4 << 10,
                              .deterministic = deterministic,
                              .cudnn = &weir_emulator::FakeCudnn(),
                              .choices_file = choices_file})
      .value();
}

// ---------------------------------------------------------------- contract

// Only the last engine keeps the contract.
std::unique_ptr<Backend> Fp32() {
  ConfigureCudnn({AnyOrder(0), Noted(1, kCudnnTensorCore),
                  Noted(2, kCudnnDownConverts), Noted(3, kCudnnReducedSums),
                  Unplanned(4), Engine(5, 4096)});
  return MakeBackend(Precision::kFp32, true);
}
// No engine of these two is slow: that would cost what it stands for.
std::unique_ptr<Backend> Fp32Timed() {
  ConfigureCudnn({Engine(0), Engine(1, 1 << 20)});
  return MakeBackend(Precision::kFp32, false);
}
std::unique_ptr<Backend> Fp32WithoutFusedBias() {
  FakeEngine engine = Engine(0);
  engine.bias = false;
  ConfigureCudnn({engine});
  return MakeBackend(Precision::kFp32, true);
}
std::unique_ptr<Backend> Tf32() {
  ConfigureCudnn({AnyOrder(0), Noted(1, kCudnnTensorCore)});
  return MakeBackend(Precision::kTf32, true);
}
std::unique_ptr<Backend> Bf16Only(std::optional<bool> bf16_factors,
                                  std::optional<bool> bf16_result) {
  FakeEngine engine = Noted(0, kCudnnTensorCore);
  engine.bf16_factors = bf16_factors;
  engine.bf16_result = bf16_result;
  ConfigureCudnn({engine});
  return MakeBackend(Precision::kBf16, true);
}
std::unique_ptr<Backend> Bf16ToBf16() { return Bf16Only(true, true); }
std::unique_ptr<Backend> Bf16ToFloat32() { return Bf16Only(true, false); }
std::unique_ptr<Backend> Bf16AsTf32() { return Bf16Only(false, false); }
std::unique_ptr<Backend> Bf16Timed() {
  ConfigureCudnn({Noted(0, kCudnnTensorCore)});
  return MakeBackend(Precision::kBf16, false);
}

auto CheckNamed(const std::string& name) {
  std::vector<OperationCheck> checks;
  for (const OperationCheck& check : OperationChecks()) {
    if (check.name == name) {
      checks.push_back(check);
    }
  }
  EXPECT_EQ(checks.size(), 1u) << name;
  return testing::ValuesIn(checks);
}
// The checks that convolve.
auto ConvolutionChecks() {
  std::vector<OperationCheck> checks;
  for (const OperationCheck& check : OperationChecks()) {
    if (check.name.find("conv2d") == 0 || check.name.find("same bits") == 0) {
      checks.push_back(check);
    }
  }
  return testing::ValuesIn(checks);
}
INSTANTIATE_TEST_SUITE_P(
    Cudnn, BackendContract,
    testing::Combine(testing::ValuesIn(std::vector<BackendMaker>{
                         {"Fp32", &Fp32, Precision::kFp32},
                         {"Fp32WithoutFusedBias", &Fp32WithoutFusedBias,
                          Precision::kFp32},
                         {"Tf32", &Tf32, Precision::kTf32},
                         {"Bf16ToBf16", &Bf16ToBf16, Precision::kBf16},
                         {"Bf16ToFloat32", &Bf16ToFloat32, Precision::kBf16},
                         {"Bf16AsTf32", &Bf16AsTf32, Precision::kBf16}}),
                     ConvolutionChecks()),
    BackendContract::Name);
// Not the check of the same bits: what is timed may differ the next time. Each
// shape is computed some ten times, so either precision has one check.
INSTANTIATE_TEST_SUITE_P(CudnnTimed, BackendContract,
                         testing::Combine(testing::Values(BackendMaker{
                                              "Fp32", &Fp32Timed,
                                              Precision::kFp32}),
                                          CheckNamed("conv2d")),
                         BackendContract::Name);
INSTANTIATE_TEST_SUITE_P(CudnnTimedGradients, BackendContract,
                         testing::Combine(testing::Values(BackendMaker{
                                              "Bf16", &Bf16Timed,
                                              Precision::kBf16}),
                                          CheckNamed("conv2d gradients")),
                         BackendContract::Name);

// ------------------------------------------------------------------- engines

constexpr Conv2dShape kShape{2, 3, 7, 6, 5, 3, 2, 1};
constexpr int64_t kXCount = int64_t{2} * 3 * 7 * 6;
constexpr int64_t kYCount = int64_t{2} * 5 * 4 * 3;
constexpr int64_t kKernelCount = int64_t{5} * 3 * 9;

struct Results {
  std::vector<float> y, dx, dkernel;
};

// All three operations; what went wrong stays in the backend.
Results Convolve(Backend* backend, const Conv2dShape& shape = kShape) {
  const int64_t x_count = shape.x_elements();
  const int64_t y_count = shape.y_elements();
  const int64_t kernel_count = shape.kernel_elements();
  Results results{std::vector<float>(y_count), std::vector<float>(x_count),
                  std::vector<float>(kernel_count)};
  std::vector<float*> memory;
  const auto device = [&](const std::vector<float>& values) {
    const auto count = static_cast<int64_t>(values.size());
    memory.push_back(backend->Allocate(count).value());
    backend->Upload(memory.back(), values.data(), count);
    return memory.back();
  };
  const std::vector<float> values[] = {RandomFloats(1, x_count, -1, 1),
                                       RandomFloats(2, y_count, -1, 1),
                                       RandomFloats(3, kernel_count, -1, 1),
                                       RandomFloats(4, shape.filters, -1, 1)};
  const float* const x = device(values[0]);
  const float* const dy = device(values[1]);
  const float* const kernel = device(values[2]);
  const float* const bias = device(values[3]);
  float* const y = device(results.y);
  float* const dx = device(results.dx);
  float* const dkernel = device(results.dkernel);
  backend->Run(op::Conv2dForward{shape, x, kernel, bias, y});
  backend->Run(op::Conv2dBackwardData{shape, dy, kernel, dx});
  backend->Run(op::Conv2dBackwardKernel{shape, x, dy, dkernel, nullptr});
  backend->Download(results.y.data(), y, y_count);
  backend->Download(results.dx.data(), dx, x_count);
  backend->Download(results.dkernel.data(), dkernel, kernel_count);
  backend->Wait(backend->Mark());
  for (float* const each : memory) {
    backend->Release(each);
  }
  return results;
}

// The result of Weir's own implementation.
Results OwnResults() {
  weir_emulator::Configure({});
  const auto backend = CudaBackend::Create({.column_bytes_max = 4 << 10,
                                            .cudnn_library = kNoCudnn})
                           .value();
  return Convolve(backend.get());
}

void ExpectNear(const Results& actual, const Results& expected) {
  EXPECT_LT(RelativeError(actual.y.data(), expected.y.data(), kYCount), 1e-5);
  EXPECT_LT(RelativeError(actual.dx.data(), expected.dx.data(), kXCount), 1e-5);
  EXPECT_LT(RelativeError(actual.dkernel.data(), expected.dkernel.data(),
                          kKernelCount),
            1e-5);
}

struct Choice {
  const char* name;
  Precision precision;
  bool deterministic;
  std::vector<FakeEngine> advised;
  int64_t engine;  // -1: Weir's own
};

const std::vector<Choice>& Choices() {
  constexpr auto kFp32 = Precision::kFp32;
  constexpr auto kTf32 = Precision::kTf32;
  constexpr auto kBf16 = Precision::kBf16;
  constexpr int64_t kGiB = int64_t{1} << 30;
  static const auto* const choices = new std::vector<Choice>{
      {"Fastest", kFp32, false, {Slow(0, 5), Slow(1, 2), Slow(2, 9)}, 1},
      {"FirstOfDeterministic",
       kFp32,
       true,
       {AnyOrder(0), Slow(1, 5), Slow(2, 2)},
       1},
      {"NoneIsDeterministic", kFp32, true, {AnyOrder(0), AnyOrder(1)}, -1},
      {"AnyOrderWhereItMay", kFp32, false, {AnyOrder(0), Slow(1, 5)}, 0},
      {"NoneAdvised", kFp32, false, {}, -1},
      {"Planned", kFp32, false, {Unplanned(0), Slow(1, 5)}, 1},
      {"PlannedDeterministic", kFp32, true, {Unplanned(0), Slow(1, 5)}, 1},
      {"NonePlanned", kFp32, false, {Unplanned(0), Unplanned(1)}, -1},
      {"Runs", kFp32, false, {Failing(0), Slow(1, 5)}, 1},
      {"NoneRuns", kFp32, false, {Failing(0), Failing(1)}, -1},
      {"NoTf32InFp32",
       kFp32,
       false,
       {Noted(0, kCudnnTensorCore), Slow(1, 5)},
       1},
      {"Tf32", kTf32, false, {Noted(0, kCudnnTensorCore), Slow(1, 5)}, 0},
      {"NeverFewerBits",
       kTf32,
       false,
       {Noted(0, kCudnnDownConverts), Noted(1, kCudnnReducedSums)},
       -1},
      {"Bf16", kBf16, false, {Slow(0, 5), Noted(1, kCudnnTensorCore)}, 1},
      {"Bf16NeverFewerBits", kBf16, false, {Noted(0, kCudnnReducedSums)}, -1},
      {"WorkspaceFits", kFp32, false, {Engine(0, kGiB + 1), Slow(1, 5)}, 1},
      {"WorkspaceFitsDeterministic",
       kFp32,
       true,
       {Engine(0, (256 << 20) + 1), Engine(1, 1 << 20)},
       1},
      {"NoWorkspaceFits", kFp32, false, {Engine(0, kGiB + 1)}, -1}};
  return *choices;
}

class CudnnChoice : public testing::TestWithParam<Choice> {};

TEST_P(CudnnChoice, TakesAnEngineThatKeepsTheContract) {
  const Choice& choice = GetParam();
  ConfigureCudnn(choice.advised);
  const auto backend = MakeBackend(choice.precision, choice.deterministic);
  Convolve(backend.get());
  const size_t before = CountCudnn().engines.size();
  const int64_t asked = CountCudnn().asked;
  Convolve(backend.get());
  EXPECT_TRUE(backend->TakeStatus().ok());
  std::vector<int64_t> engines = CountCudnn().engines;
  engines.erase(engines.begin(),
                engines.begin() + static_cast<std::ptrdiff_t>(before));
  EXPECT_EQ(engines.size(), choice.engine < 0 ? 0u : 3u);
  EXPECT_THAT(engines, Each(choice.engine));
  EXPECT_EQ(CountCudnn().asked, asked);
}

INSTANTIATE_TEST_SUITE_P(Cudnn, CudnnChoice, testing::ValuesIn(Choices()),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

// The engines of forward, backward data and backward kernel, in this order.
std::vector<int64_t> Known(Precision precision, Conv2dShape shape,
                           const FakeEngine& forward) {
  ConfigureCudnn({Engine(1), Engine(17, 1 << 20), AnyOrder(3), forward});
  const auto backend = MakeBackend(precision, /*deterministic=*/true);
  Convolve(backend.get(), shape);
  EXPECT_TRUE(backend->TakeStatus().ok());
  return CountCudnn().engines;
}

// Nothing is timed: the choice would be that of one machine.
TEST(CudnnConvolutionTest, TransformsWhereThatIsDeterministicAndFast) {
  Conv2dShape shape = kShape;
  shape.channels = shape.filters = 16;
  const FakeEngine forward = Engine(12, 1 << 20);
  using testing::ElementsAre;
  EXPECT_THAT(Known(Precision::kFp32, shape, forward), ElementsAre(12, 1, 17));
  EXPECT_THAT(Known(Precision::kTf32, shape, forward), ElementsAre(1, 1, 1));
  FakeEngine failing = forward;
  failing.plans = false;
  EXPECT_THAT(Known(Precision::kFp32, shape, failing), ElementsAre(1, 1, 17));
  // More than the emulator's device has, but not more than is allowed.
  EXPECT_THAT(Known(Precision::kFp32, shape, Engine(12, 512 << 20)),
              ElementsAre(1, 1, 17));
  EXPECT_THAT(
      Known(Precision::kFp32, shape, Engine(12, (int64_t{1} << 30) + 1)),
      ElementsAre(1, 1, 17));
  shape.channels = 15;
  EXPECT_THAT(Known(Precision::kFp32, shape, forward), ElementsAre(1, 1, 1));
}

TEST(CudnnConvolutionTest, FallsBackWhereTheHeuristicsKnowNothing) {
  ConfigureCudnn({Noted(0, kCudnnTensorCore)}, {Engine(7)});
  const auto backend = MakeBackend(Precision::kFp32, true);
  Convolve(backend.get());
  EXPECT_THAT(CountCudnn().engines, testing::ElementsAre(7, 7, 7));
}

TEST(CudnnConvolutionTest, PlansOncePerOperationAndShape) {
  ConfigureCudnn({Engine(1, 1024)});
  const auto backend = MakeBackend(Precision::kFp32, true);
  for (int i = 0; i < 4; ++i) {
    Convolve(backend.get());
  }
  EXPECT_EQ(CountCudnn().plans, 3);
  EXPECT_EQ(CountCudnn().runs, 12);
  Conv2dShape shape = kShape;
  shape.batch = 1;
  Convolve(backend.get(), shape);
  EXPECT_EQ(CountCudnn().plans, 6);
}

// What was tried and not taken is given back.
TEST(CudnnConvolutionTest, CountsItsScratch) {
  for (const bool deterministic : {true, false}) {
    FakeEngine slow = Slow(0, 9);
    slow.workspace_bytes = deterministic ? 1 << 20 : 3 << 20;
    FakeEngine fast = Engine(1, 1 << 20);
    ConfigureCudnn({slow, fast});
    const auto backend = MakeBackend(Precision::kFp32, deterministic);
    const int64_t before = backend->Usage().bytes_used;
    Convolve(backend.get());
    EXPECT_EQ(backend->Usage().bytes_used,
              before + (1 << 20) + 4 * kKernelCount);
  }
}

// --------------------------------------------------------------- kept choices

class CudnnChoicesFile : public testing::Test {
 protected:
  // How many plans two convolutions of every kind make, by a new backend.
  int64_t Plans() {
    ConfigureCudnn({Slow(0, 5), Slow(1, 2), Slow(2, 9)});
    const auto backend = MakeBackend(Precision::kFp32, false, path_);
    Convolve(backend.get());
    Convolve(backend.get());
    EXPECT_TRUE(backend->TakeStatus().ok());
    EXPECT_EQ(CountCudnn().engines.back(), 1);
    return CountCudnn().plans;
  }

  const std::string folder_ =
      std::string(testing::TempDir()) + "/" +
      testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::string path_ = folder_ + "/deep/convolutions.txt";
};

TEST_F(CudnnChoicesFile, SparesTheNextProcessTheTiming) {
  // The forward pass has three engines in two ways, the others in one.
  EXPECT_EQ(Plans(), 6 + 3 + 3);
  EXPECT_EQ(Plans(), 3);
}

TEST_F(CudnnChoicesFile, IsTimedAgainWhereItNamesNoEngine) {
  Plans();
  std::ifstream file(path_);
  std::string text;
  for (std::string line; std::getline(file, line);) {
    text += line.substr(0, line.find('\t')) + "\tengine 9, advice 3.9\n";
  }
  std::ofstream(path_) << "no tab\n" << text << "half a li";
  EXPECT_EQ(Plans(), 12);
  EXPECT_EQ(Plans(), 3);
}

TEST_F(CudnnChoicesFile, IsTimedAgainWhereThereIsLessMemory) {
  for (const int64_t mib : {2048, 100}) {
    ConfigureCudnn({Slow(0, 9), Engine(1, 200 << 20)});
    weir_emulator::Configure({.bytes_per_device = mib << 20});
    const auto backend =
        CudaBackend::Create({.column_bytes_max = 4 << 10,
                             .cudnn = &weir_emulator::FakeCudnn(),
                             .choices_file = path_})
            .value();
    Convolve(backend.get());
    EXPECT_TRUE(backend->TakeStatus().ok());
    EXPECT_EQ(CountCudnn().engines.back(), mib == 100 ? 0 : 1);
  }
}

TEST_F(CudnnChoicesFile, MayBeImpossible) {
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ + "/deep") << "a file where a folder should be";
  EXPECT_EQ(Plans(), 12);
  EXPECT_EQ(Plans(), 12);
}

// ----------------------------------------------------------------- fall-back

// Whatever call refuses: the operation is computed all the same.
TEST(CudnnConvolutionTest, ComputesItselfWhatCudnnRefusesToPlan) {
  const Results expected = OwnResults();
  for (const char* function :
       {"cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
        "cudnnBackendFinalize", "cudnnBackendGetAttribute"}) {
    SCOPED_TRACE(function);
    FakeEngine engine = Engine(1, 512);
    engine.bias = true;  // so the forward pass has no second way
    ConfigureCudnn({engine});
    const auto backend = MakeBackend(Precision::kFp32, true);
    weir_emulator::FailNext(cudaErrorInvalidValue, function);
    ExpectNear(Convolve(backend.get()), expected);
    EXPECT_EQ(CountCudnn().runs, 0);
    const int64_t asked = CountCudnn().asked;
    ExpectNear(Convolve(backend.get()), expected);
    EXPECT_EQ(CountCudnn().runs, 0);
    EXPECT_EQ(CountCudnn().asked, asked);
    EXPECT_TRUE(backend->TakeStatus().ok());
    // Without the failure it would have run.
    Convolve(MakeBackend(Precision::kFp32, true).get());
    EXPECT_EQ(CountCudnn().runs, 1);
  }
}

TEST(CudnnConvolutionTest, ComputesItselfWhereTheWorkspaceHasNoMemory) {
  ConfigureCudnn({Engine(1, 200 << 20)});
  for (const bool deterministic : {true, false}) {
    weir_emulator::Configure({.bytes_per_device = 100 << 20});
    const auto backend =
        CudaBackend::Create({.deterministic = deterministic,
                             .cudnn = &weir_emulator::FakeCudnn()})
            .value();
    const Results results = Convolve(backend.get());
    EXPECT_TRUE(backend->TakeStatus().ok());
    EXPECT_EQ(CountCudnn().runs, 0);
    ExpectNear(results, OwnResults());
  }
}

TEST(CudnnConvolutionTest, ComputesItselfWhatIsNotAligned) {
  ConfigureCudnn({Engine(1)});
  const auto backend = MakeBackend(Precision::kFp32, true);
  float* const memory = backend->Allocate(64).value();
  std::vector<float> values(64, 1.0f);
  backend->Upload(memory, values.data(), 64);
  const Conv2dShape shape{1, 1, 3, 3, 1, 3, 1, 0};
  backend->Run(
      op::Conv2dForward{shape, memory + 1, memory, nullptr, memory + 32});
  float y = 0.0f;
  backend->Download(&y, memory + 32, 1);
  backend->Wait(backend->Mark());
  EXPECT_EQ(y, 9.0f);
  EXPECT_EQ(CountCudnn().runs, 0);
  backend->Release(memory);
}

TEST(CudnnConvolutionTest, FailsLoudlyWhereAPlanDoesNotRun) {
  ConfigureCudnn({Engine(1)});
  const auto backend = MakeBackend(Precision::kFp32, true);
  Convolve(backend.get());
  weir_emulator::FailNext(cudaErrorInvalidValue, "cudnnBackendExecute");
  Convolve(backend.get());
  const absl::Status status = backend->TakeStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("cuDNN convolution forward"),
                    HasSubstr("[2, 3, 7, 6] by 5 filters of 3x3"),
                    HasSubstr("CUDNN_STATUS_EXECUTION_FAILED")));
}

TEST(CudnnConvolutionTest, WorksWithoutCudnn) {
  const Results expected = OwnResults();
  ConfigureCudnn({Engine(1)});
  weir_emulator::Configure({});
  weir_emulator::FailNext(cudaErrorInvalidValue, "cudnnCreate");
  CudaBackend::Options does_not_start;
  does_not_start.cudnn = &weir_emulator::FakeCudnn();
  CudaBackend::Options absent;
  absent.cudnn_library = "libno_such_cudnn.so.9";
  CudaBackend::Options unwanted = does_not_start;
  unwanted.cudnn_library = kNoCudnn;
  for (const auto& options : {does_not_start, absent, unwanted}) {
    const auto backend = CudaBackend::Create(options).value();
    ExpectNear(Convolve(backend.get()), expected);
    EXPECT_TRUE(backend->TakeStatus().ok());
  }
  EXPECT_EQ(CountCudnn().asked, 0);
}

constexpr char kDense[] = R"(
  layer { name: "flat" flatten {} }
  layer { name: "logits" dense { units: 3 } }
  loss { softmax_cross_entropy {} })";

TEST(CudnnConvolutionTest, IsNotOpenedBeforeTheFirstConvolution) {
  ConfigureCudnn({Engine(1)});
  {
    const auto cuda =
        NetworkTester::Create(kDense, {2, 3, 3},
                              MakeBackend(Precision::kFp32, false))
            .value();
    for (int step = 0; step < 3; ++step) {
      cuda->MakeBatch(step, 4);
      ASSERT_TRUE(cuda->Step().ok());
    }
    EXPECT_EQ(CountCudnn().open, 0);
  }
  const auto backend = MakeBackend(Precision::kFp32, false);
  EXPECT_GT(backend->Usage().bytes_used, 0);
  EXPECT_EQ(CountCudnn().open, 0);
  Convolve(backend.get());
  EXPECT_GT(CountCudnn().open, 0);
}

TEST(CudnnConvolutionTest, GivesEverythingBack) {
  ConfigureCudnn({Engine(1, 512), Slow(2, 5)});
  for (const bool deterministic : {true, false}) {
    const auto backend = MakeBackend(Precision::kBf16, deterministic);
    Convolve(backend.get());
    EXPECT_GT(CountCudnn().open, 1);
  }
  EXPECT_EQ(CountCudnn().open, 0);
  EXPECT_EQ(weir_emulator::Counts().device_blocks, 0);
  EXPECT_EQ(weir_emulator::Counts().streams, 0);
}

// ------------------------------------------------------------------- capture

constexpr char kConvNet[] = R"(
  layer { name: "first" conv2d { filters: 4 kernel_size: 3 padding: 1 } }
  layer { name: "act" relu {} }
  layer { name: "second" conv2d { filters: 6 kernel_size: 3 stride: 2 } }
  layer { name: "flat" flatten {} }
  layer { name: "logits" dense { units: 3 } }
  loss { softmax_cross_entropy {} })";
const std::vector<int64_t> kSample = {2, 7, 7};
constexpr int64_t kRows = 4;

std::unique_ptr<NetworkTester> Network(std::unique_ptr<Backend> backend) {
  return NetworkTester::Create(kConvNet, kSample, std::move(backend)).value();
}

// Step 0 runs as it comes, step 1 is captured, the others are replays of it.
TEST(CudnnConvolutionTest, TrainsInCapturedStepsAsOnTheCpu) {
  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    ConfigureCudnn({AnyOrder(0), Engine(1, 2048)});
    const auto cuda = Network(MakeBackend(Precision::kFp32, true));
    const auto cpu = Network(nullptr);
    for (int step = 0; step < 5; ++step) {
      SCOPED_TRACE(step);
      for (NetworkTester* tester : {cuda.get(), cpu.get()}) {
        tester->MakeBatch(step, kRows);
        const auto result = tester->Step();
        ASSERT_TRUE(result.ok()) << result.status();
      }
      for (const VariableSpec& variable : cpu->network().variables()) {
        EXPECT_LT(
            RelativeError(cuda->gradient(variable.name),
                          cpu->gradient(variable.name), variable.elements()),
            1e-5)
            << variable.name;
      }
      // Two layers, one data gradient.
      EXPECT_EQ(CountCudnn().runs, 5 * std::min(step + 1, 2));
    }
    EXPECT_EQ(CountCudnn().plans, 5);
  }
}

TEST(CudnnConvolutionTest, AllocatesNothingAfterTheFirstStep) {
  for (const bool deterministic : {true, false}) {
    ConfigureCudnn({Engine(1, 2048), Slow(2, 5)});
    const auto cuda = Network(MakeBackend(Precision::kBf16, deterministic));
    weir_emulator::Counters before;
    for (int step = 0; step < 6; ++step) {
      cuda->MakeBatch(step, kRows);
      ASSERT_TRUE(cuda->Step().ok());
      if (step == 0) {
        before = weir_emulator::Counts();
      }
    }
    EXPECT_EQ(weir_emulator::Counts().malloc_calls, before.malloc_calls);
    EXPECT_EQ(weir_emulator::Counts().device_bytes, before.device_bytes);
  }
}

}  // namespace
}  // namespace weir::cuda
