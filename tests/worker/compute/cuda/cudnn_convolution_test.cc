// Convolutions by cuDNN, a fake one on the emulator: the contract, which
// algorithms are taken, what happens where there is none, capture.
#include "worker/compute/cuda/cudnn_convolution.h"

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
using weir_emulator::kCudnnNotSupported;
using weir_emulator::PlainAdvice;

CudnnAdvice Advice(int algorithm, size_t workspace_bytes) {
  CudnnAdvice advice = PlainAdvice(algorithm);
  advice.workspace_bytes = workspace_bytes;
  return advice;
}
CudnnAdvice AnyOrder(int algorithm) {
  CudnnAdvice advice = Advice(algorithm, 512);
  advice.determinism = 0;
  return advice;
}
CudnnAdvice WithMath(int algorithm, int math) {
  CudnnAdvice advice = Advice(algorithm, 256);
  advice.math = math;
  return advice;
}
CudnnAdvice Unsupported(int algorithm) {
  CudnnAdvice advice = PlainAdvice(algorithm);
  advice.status = kCudnnNotSupported;
  return advice;
}
// A transform in every operation.
CudnnAdvice Transform() { return PlainAdvice(5); }
CudnnAdvice Greedy(int algorithm) { return Advice(algorithm, (256 << 20) + 1); }

std::unique_ptr<CudaBackend> MakeBackend(Precision precision,
                                         bool deterministic) {
  static uint64_t seed = 0;
  weir_emulator::Configure({.seed = ++seed});
  return CudaBackend::Create({.precision = precision,
                              .column_bytes_max = 4 << 10,
                              .deterministic = deterministic,
                              .cudnn = &weir_emulator::FakeCudnn()})
      .value();
}

// ---------------------------------------------------------------- contract

// Only the last algorithm keeps the contract in every operation.
std::unique_ptr<Backend> Fp32() {
  ConfigureCudnn({Transform(), AnyOrder(0), WithMath(0, kCudnnTensorOpMath),
                  Unsupported(0), Advice(1, 4096)});
  return MakeBackend(Precision::kFp32, true);
}
std::unique_ptr<Backend> Fp32DefaultMath() {
  ConfigureCudnn({WithMath(1, kCudnnDefaultMath)});
  return MakeBackend(Precision::kFp32, true);
}
std::unique_ptr<Backend> Tf32() {
  ConfigureCudnn({AnyOrder(0), WithMath(1, kCudnnTensorOpMath)});
  return MakeBackend(Precision::kTf32, true);
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
                         {"Fp32DefaultMath", &Fp32DefaultMath,
                          Precision::kFp32},
                         {"Tf32", &Tf32, Precision::kTf32}}),
                     ConvolutionChecks()),
    BackendContract::Name);

// --------------------------------------------------------------- algorithms

constexpr Conv2dShape kShape{2, 3, 7, 6, 5, 3, 2, 1};
constexpr int64_t kXCount = int64_t{2} * 3 * 7 * 6;
constexpr int64_t kYCount = int64_t{2} * 5 * 4 * 3;
constexpr int64_t kKernelCount = int64_t{5} * 3 * 9;

struct Results {
  std::vector<float> y, dx, dkernel;
};

// All three operations; what went wrong stays in the backend.
Results Convolve(Backend* backend, const Conv2dShape& shape = kShape) {
  Results results{std::vector<float>(kYCount), std::vector<float>(kXCount),
                  std::vector<float>(kKernelCount)};
  std::vector<float*> memory;
  const auto device = [&](const std::vector<float>& values) {
    const auto count = static_cast<int64_t>(values.size());
    memory.push_back(backend->Allocate(count).value());
    backend->Upload(memory.back(), values.data(), count);
    return memory.back();
  };
  const std::vector<float> values[] = {
      RandomFloats(1, kXCount, -1, 1), RandomFloats(2, kYCount, -1, 1),
      RandomFloats(3, kKernelCount, -1, 1), RandomFloats(4, 5, -1, 1)};
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
  backend->Download(results.y.data(), y, kYCount);
  backend->Download(results.dx.data(), dx, kXCount);
  backend->Download(results.dkernel.data(), dkernel, kKernelCount);
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
  std::vector<CudnnAdvice> advice;
  int algorithm;  // -1: Weir's own
};

const std::vector<Choice>& Choices() {
  constexpr auto kFp32 = Precision::kFp32;
  constexpr auto kTf32 = Precision::kTf32;
  static const auto* const choices = new std::vector<Choice>{
      {"Fastest", kFp32, false, {AnyOrder(0), Advice(1, 64)}, 0},
      {"Deterministic", kFp32, true, {AnyOrder(0), Advice(1, 64)}, 1},
      {"NoneIsDeterministic", kFp32, true, {AnyOrder(0), AnyOrder(1)}, -1},
      {"NoneAdvised", kFp32, false, {}, -1},
      {"Supported", kFp32, false, {Unsupported(0), PlainAdvice(1)}, 1},
      {"NoneSupported", kFp32, false, {Unsupported(0), Unsupported(1)}, -1},
      {"NoTf32InFp32",
       kFp32,
       false,
       {WithMath(0, kCudnnTensorOpMath), PlainAdvice(1)},
       1},
      {"Tf32", kTf32, false, {WithMath(0, kCudnnTensorOpMath)}, 0},
      {"NeverHalfPrecision", kTf32, false, {WithMath(0, 2)}, -1},
      {"WorkspaceFits", kFp32, false, {Greedy(0), Advice(1, 1 << 20)}, 1},
      {"NoWorkspaceFits", kFp32, false, {Greedy(0), Greedy(1)}, -1},
      {"NoTransform", kTf32, false, {Transform()}, -1}};
  return *choices;
}

class CudnnChoice : public testing::TestWithParam<Choice> {};

TEST_P(CudnnChoice, TakesTheFirstAlgorithmThatKeepsTheContract) {
  const Choice& choice = GetParam();
  ConfigureCudnn(choice.advice);
  const auto backend = MakeBackend(choice.precision, choice.deterministic);
  Convolve(backend.get());
  EXPECT_TRUE(backend->TakeStatus().ok());
  EXPECT_EQ(CountCudnn().advised, 3);
  EXPECT_EQ(CountCudnn().runs, choice.algorithm < 0 ? 0 : 3);
  EXPECT_THAT(CountCudnn().algorithms, Each(choice.algorithm));
}

INSTANTIATE_TEST_SUITE_P(Cudnn, CudnnChoice, testing::ValuesIn(Choices()),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

TEST(CudnnConvolutionTest, PlansOncePerOperationAndShape) {
  ConfigureCudnn({Advice(1, 1024)});
  const auto backend = MakeBackend(Precision::kFp32, true);
  for (int i = 0; i < 4; ++i) {
    Convolve(backend.get());
  }
  EXPECT_EQ(CountCudnn().advised, 3);
  EXPECT_EQ(CountCudnn().runs, 12);
  Conv2dShape shape = kShape;
  shape.batch = 1;
  Convolve(backend.get(), shape);
  EXPECT_EQ(CountCudnn().advised, 6);
}

TEST(CudnnConvolutionTest, CountsItsScratch) {
  ConfigureCudnn({Advice(1, 1 << 20)});
  const auto backend = MakeBackend(Precision::kFp32, true);
  const int64_t before = backend->Usage().bytes_used;
  Convolve(backend.get());
  EXPECT_EQ(backend->Usage().bytes_used, before + (1 << 20) + 4 * kKernelCount);
}

// ----------------------------------------------------------------- fall-back

// Whatever call refuses a shape: that operation is computed all the same, is
// not asked for again, and the others stay with cuDNN.
TEST(CudnnConvolutionTest, ComputesItselfWhatCudnnRefusesToPlan) {
  const Results expected = OwnResults();
  for (const char* function :
       {"cudnnCreateTensorDescriptor", "cudnnCreateFilterDescriptor",
        "cudnnCreateConvolutionDescriptor", "cudnnSetTensor4dDescriptor",
        "cudnnGetConvolutionForwardAlgorithm_v7",
        "cudnnGetConvolutionForwardWorkspaceSize",
        "cudnnGetConvolutionBackwardDataAlgorithm_v7",
        "cudnnGetConvolutionBackwardDataWorkspaceSize",
        "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
        "cudnnGetConvolutionBackwardFilterWorkspaceSize"}) {
    SCOPED_TRACE(function);
    ConfigureCudnn({Advice(1, 512)});
    const auto backend = MakeBackend(Precision::kFp32, true);
    weir_emulator::FailNext(cudaErrorInvalidValue, function);
    ExpectNear(Convolve(backend.get()), expected);
    EXPECT_EQ(CountCudnn().runs, 2);
    const int64_t advised = CountCudnn().advised;
    ExpectNear(Convolve(backend.get()), expected);
    EXPECT_EQ(CountCudnn().runs, 4);
    EXPECT_EQ(CountCudnn().advised, advised);
    EXPECT_TRUE(backend->TakeStatus().ok());
  }
}

TEST(CudnnConvolutionTest, ComputesItselfWhereTheWorkspaceHasNoMemory) {
  ConfigureCudnn({Advice(1, 200 << 20)});
  weir_emulator::Configure({.bytes_per_device = 100 << 20});
  const auto backend =
      CudaBackend::Create({.cudnn = &weir_emulator::FakeCudnn()}).value();
  const Results results = Convolve(backend.get());
  EXPECT_TRUE(backend->TakeStatus().ok());
  EXPECT_EQ(CountCudnn().runs, 0);
  ExpectNear(results, OwnResults());
}

TEST(CudnnConvolutionTest, FailsLoudlyWhereAPlanDoesNotRun) {
  struct Case {
    const char* function;
    const char* operation;
  };
  for (const auto& [function, operation] :
       {Case{"cudnnConvolutionForward", "convolution forward"},
        Case{"cudnnConvolutionBackwardData", "convolution backward data"},
        Case{"cudnnConvolutionBackwardFilter",
             "convolution backward kernel"}}) {
    ConfigureCudnn({PlainAdvice(1)});
    const auto backend = MakeBackend(Precision::kFp32, true);
    weir_emulator::FailNext(cudaErrorInvalidValue, function);
    Convolve(backend.get());
    const absl::Status status = backend->TakeStatus();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("cuDNN"), HasSubstr(operation),
                      HasSubstr("[2, 3, 7, 6] by 5 filters of 3x3"),
                      HasSubstr("CUDNN_STATUS_EXECUTION_FAILED")));
  }
}

TEST(CudnnConvolutionTest, WorksWithoutCudnn) {
  const Results expected = OwnResults();
  ConfigureCudnn({PlainAdvice(1)});
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
  EXPECT_EQ(CountCudnn().advised, 0);
}

constexpr char kDense[] = R"(
  layer { name: "flat" flatten {} }
  layer { name: "logits" dense { units: 3 } }
  loss { softmax_cross_entropy {} })";

TEST(CudnnConvolutionTest, IsNotOpenedBeforeTheFirstConvolution) {
  ConfigureCudnn({PlainAdvice(1)});
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

TEST(CudnnConvolutionTest, LeavesBf16ToWeirsOwnWay) {
  ConfigureCudnn({PlainAdvice(1)});
  const auto backend = MakeBackend(Precision::kBf16, false);
  Convolve(backend.get());
  EXPECT_TRUE(backend->TakeStatus().ok());
  EXPECT_EQ(CountCudnn().advised, 0);
  EXPECT_EQ(CountCudnn().open, 0);
}

TEST(CudnnConvolutionTest, GivesEverythingBack) {
  ConfigureCudnn({Advice(1, 512)});
  {
    const auto backend = MakeBackend(Precision::kFp32, true);
    Convolve(backend.get());
    EXPECT_EQ(CountCudnn().open, 1 + 3 * 4);
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
    ConfigureCudnn({AnyOrder(0), Advice(1, 2048)});
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
    EXPECT_EQ(CountCudnn().advised, 5);
  }
}

TEST(CudnnConvolutionTest, AllocatesNothingAfterTheFirstStep) {
  ConfigureCudnn({Advice(1, 2048)});
  const auto cuda = Network(MakeBackend(Precision::kFp32, true));
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

}  // namespace
}  // namespace weir::cuda
