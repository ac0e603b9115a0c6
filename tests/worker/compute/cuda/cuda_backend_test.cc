// The CUDA backend on the emulator: every check of the contract in every
// precision, then what is CUDA's own: streams, capture, memory, errors.
#include "worker/compute/cuda/cuda_backend.h"

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/compute/backend_contract.h"
#include "weir_cuda_emulator.h"

namespace weir::cuda {
namespace {

using ::testing::HasSubstr;

// A device of its own for every test; the seed decides in which order streams
// run. Columns are cut so that convolutions come in parts.
std::unique_ptr<Backend> Make(Precision precision) {
  static uint64_t seed = 0;
  weir_emulator::Configure({.seed = ++seed});
  return CudaBackend::Create(
             {.precision = precision, .column_bytes_max = 4 << 10})
      .value();
}
std::unique_ptr<Backend> Fp32() { return Make(Precision::kFp32); }
std::unique_ptr<Backend> Tf32() { return Make(Precision::kTf32); }
std::unique_ptr<Backend> Bf16Mixed() { return Make(Precision::kBf16); }

INSTANTIATE_TEST_SUITE_P(Cuda, BackendContract,
                         EveryCheck({{"Fp32", &Fp32, Precision::kFp32},
                                     {"Tf32", &Tf32, Precision::kTf32},
                                     {"Bf16", &Bf16Mixed, Precision::kBf16}}),
                         BackendContract::Name);

TEST(CudaBackendTest, NamesTheDeviceAndWhatItHolds) {
  const auto backend = Fp32();
  EXPECT_FALSE(backend->shares_host_memory());
  EXPECT_THAT(backend->name(), HasSubstr("cuda:0"));
  const int64_t before = backend->Usage().bytes_used;
  float* const memory = backend->Allocate(1000).value();
  EXPECT_EQ(backend->Usage().bytes_used, before + 4000);
  EXPECT_GE(backend->Usage().bytes_reserved, before);
  backend->Release(memory);
  EXPECT_EQ(backend->Usage().bytes_used, before);
}

TEST(CudaBackendTest, CountsTheTimeOfOperationsAsBusy) {
  const auto backend = Fp32();
  EXPECT_EQ(backend->Usage().busy_ns, 0);
  float* const x = backend->Allocate(100).value();
  for (int i = 0; i < 3; ++i) {
    backend->Run(op::Add{100, x, x, x});
    backend->Wait(backend->Mark());
  }
  EXPECT_GT(backend->Usage().busy_ns, 0);
}

TEST(CudaBackendTest, RefusesADeviceThatIsNotThere) {
  weir_emulator::Configure({.devices = 2});
  for (const int device : {2, -1}) {
    const absl::Status status =
        CudaBackend::Create({.device = device}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("this machine has 2 devices"));
  }
  EXPECT_TRUE(CudaBackend::Create({.device = 1}).ok());
}

TEST(CudaBackendTest, SaysThatThereIsNoDriver) {
  weir_emulator::Configure({.driver_missing = true});
  const absl::Status status = CudaBackend::Create({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("driver"));
}

TEST(CudaBackendTest, SaysWhatWasAskedAndWhatIsFree) {
  const auto backend = Fp32();
  for (const int64_t elements : {int64_t{1} << 27, int64_t{1} << 62}) {
    const absl::Status status = backend->Allocate(elements).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(status.message()), HasSubstr("bytes asked"));
  }
  EXPECT_TRUE(backend->TakeStatus().ok());
  // A failed allocation leaves nothing behind.
  float* const x = backend->Allocate(4).value();
  backend->Run(op::Add{4, x, x, x});
  backend->Wait(backend->Mark());
  EXPECT_TRUE(backend->TakeStatus().ok());
}

TEST(CudaBackendTest, KeepsTheFirstFailure) {
  const auto backend = Fp32();
  float* const x = backend->Allocate(4).value();
  weir_emulator::FailNext(cudaErrorInvalidConfiguration, "Launch");
  backend->Run(op::Add{4, x, x, x});
  backend->Wait(backend->Mark());
  const absl::Status status = backend->TakeStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("add"));
  EXPECT_TRUE(backend->TakeStatus().ok());
}

// A host that looks in between finds nothing, and its look is no failure.
// In some order of the streams, what does not wait for an upload aside reads
// what was there before; in none what does.
TEST(CudaBackendTest, UploadsAsideOfWhatDoesNotWaitForThem) {
  int overtaken = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    weir_emulator::Configure({.seed = seed});
    const auto backend = CudaBackend::Create({}).value();
    float* const x = backend->Allocate(4).value();
    float* const y = backend->Allocate(8).value();
    const std::vector<float> before(4, 1.0f);
    const std::vector<float> after(4, 2.0f);
    backend->Upload(x, before.data(), 4);
    backend->Wait(backend->Mark());
    backend->UploadAside(x, after.data(), 4);
    backend->Run(op::Add{4, x, x, y});
    backend->JoinUploadsAside();
    backend->Run(op::Add{4, x, x, y + 4});
    std::vector<float> sums(8);
    backend->Download(sums.data(), y, 8);
    backend->Wait(backend->Mark());
    overtaken += sums[0] == 2.0f ? 1 : 0;
    EXPECT_EQ(sums[4], 4.0f);
    backend->Release(x);
    backend->Release(y);
    EXPECT_TRUE(backend->TakeStatus().ok());
  }
  EXPECT_GT(overtaken, 0);
}

// A step that ends early leaves uploads of a batch behind, and then the batch
// goes. The emulator ends the process where a copy finds no memory.
TEST(CudaBackendTest, LetsNoPagesGoThatAreStillSent) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    weir_emulator::Configure({.seed = seed});
    const auto backend = CudaBackend::Create({}).value();
    float* const x = backend->Allocate(2000).value();
    {
      PageVector<float> pages(1000,
                              PageAllocator<float>(backend->host_pages()));
      backend->Upload(x, pages.data(), 1000);
      backend->UploadAside(x + 1000, pages.data(), 1000);
    }
    EXPECT_EQ(weir_emulator::Counts().pending, 0);
    backend->Release(x);
    EXPECT_TRUE(backend->TakeStatus().ok());
  }
}

TEST(CudaBackendTest, LocksPagesOfTheHostWhileTheyLive) {
  weir_emulator::Configure({});
  const auto backend = CudaBackend::Create({}).value();
  const int64_t before = weir_emulator::Counts().pinned_bytes;
  {
    PageVector<float> pages(1000, PageAllocator<float>(backend->host_pages()));
    EXPECT_EQ(weir_emulator::Counts().pinned_bytes, before + 4000);
    // What cannot be locked is memory all the same.
    weir_emulator::FailNext(cudaErrorMemoryAllocation, "cudaHostRegister");
    PageVector<float> others(500, PageAllocator<float>(backend->host_pages()));
    EXPECT_EQ(others[499], 0.0f);
    EXPECT_EQ(weir_emulator::Counts().pinned_bytes, before + 4000);
  }
  EXPECT_EQ(weir_emulator::Counts().pinned_bytes, before);
  EXPECT_TRUE(backend->TakeStatus().ok());
}

TEST(CudaBackendTest, ReachesMarksInTheirOrder) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    weir_emulator::Configure({.seed = seed});
    const auto backend = CudaBackend::Create({}).value();
    std::vector<float> host(64, 1.0f);
    float* const x = backend->MirrorHost(host.data(), 64).value();
    backend->Upload(x, host.data(), 64);
    std::vector<uint64_t> marks;
    for (int i = 0; i < 4; ++i) {
      backend->Run(op::Add{64, x, x, x});
      marks.push_back(backend->Mark());
    }
    backend->Download(host.data(), x, 64);
    marks.push_back(backend->Mark());
    size_t reached = 0;
    while (reached < marks.size()) {
      EXPECT_TRUE(reached == 0 || backend->Reached(marks[reached - 1]));
      reached += backend->Reached(marks[reached]) ? 1 : 0;
    }
    EXPECT_EQ(host[63], 16.0f);
    EXPECT_TRUE(backend->TakeStatus().ok());
  }
}

TEST(CudaBackendTest, ReachesMarksOfAReplayThatALaterOneHasPassed) {
  const auto backend = Fp32();
  float* const x = backend->Allocate(4).value();
  backend->Run(op::Add{4, x, x, x});
  ASSERT_TRUE(backend->BeginCapture());
  backend->Run(op::Add{4, x, x, x});
  const uint64_t mark = backend->Mark();
  ASSERT_TRUE(backend->EndCapture().ok());
  uint64_t first = 0;
  for (const bool later : {false, true}) {
    const uint64_t base = backend->Replay();
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    first = later ? first : base + mark;
  }
  EXPECT_TRUE(backend->Reached(first));
  backend->Wait(backend->Mark());
  EXPECT_TRUE(backend->TakeStatus().ok());
}

// ---------------------------------------------------- copies in bfloat16

constexpr int64_t kSide = 16;
constexpr int64_t kCount = kSide * kSide;
constexpr float kOld = 1000.0f;  // no operation below gives anything near
constexpr Conv2dShape kConv = {
    .batch = 2, .channels = 1, .height = 1, .width = 1, .filters = kCount};
constexpr Conv2dShape kConvData = {
    .batch = 1, .channels = 1, .height = kSide, .width = kSide, .filters = 1};
constexpr PoolShape kPool = {
    .batch = 1, .channels = 1, .height = kSide, .width = kSide};

// A tensor [16, 16] that is multiplied by the identity, written, and
// multiplied again.
class Multiplied {
 public:
  // `chosen`: which output of an operation the tensor is.
  explicit Multiplied(int chosen)
      : backend(Bf16Mixed()),
        x(backend->Allocate(2 * kCount).value()),
        chosen_(chosen),
        tensor_(backend->Allocate(kCount).value()),
        rest_(backend->Allocate(4 * kCount).value()),
        identity_(backend->Allocate(kCount).value()),
        product_(backend->Allocate(kCount).value()) {
    std::vector<float> values(2 * kCount), unit(kCount);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 1.0f + 0.3f * std::sin(static_cast<float>(i));
    }
    for (int64_t i = 0; i < kSide; ++i) {
      unit[static_cast<size_t>(i * (kSide + 1))] = 1.0f;
    }
    backend->Upload(x, values.data(), 2 * kCount);
    backend->Upload(identity_, unit.data(), kCount);
    Upload(kOld);
    Multiply();
    Wait();
  }

  // The memory of an operation's output: the tensor for the chosen one.
  float* Out(int output = 0) {
    return output == chosen_ ? tensor_ : rest_ + output * kCount;
  }
  // REQUIRES: the backend's: the queue has passed the last use.
  void Upload(float value) {
    host_.assign(kCount, value);
    backend->Upload(tensor_, host_.data(), kCount);
  }
  void Multiply() {
    backend->Run(op::MatMul{{.m = kSide, .n = kSide, .k = kSide},
                            tensor_,
                            identity_,
                            nullptr,
                            product_});
  }
  void Wait() { backend->Wait(backend->Mark()); }

  void ExpectProductOfNewValues() {
    std::vector<float> now(kCount), product(kCount);
    backend->Download(now.data(), tensor_, kCount);
    backend->Download(product.data(), product_, kCount);
    Wait();
    ASSERT_TRUE(backend->TakeStatus().ok());
    for (size_t i = 0; i < now.size(); ++i) {
      ASSERT_LT(std::abs(now[i]), kOld / 2) << "not written at " << i;
      // To the 8 bits of bfloat16: products with 1 and 0 are exact.
      ASSERT_NEAR(product[i], now[i], std::abs(now[i]) / 256) << "at " << i;
    }
  }

  const std::unique_ptr<Backend> backend;
  float* const x;  // 2 * kCount floats, 0.7 to 1.3

 private:
  const int chosen_;
  float* const tensor_;
  float* const rest_;
  float* const identity_;
  float* const product_;
  std::vector<float> host_;
};

// Writes Out(0), Out(1), ..., kCount floats each.
struct Operation {
  const char* name;
  int outputs;
  std::function<void(Multiplied* m, Backend* on, const float* x)> run;
};

std::vector<Operation> ProductsAndPointwise() {
  return {
      {"MatMul", 1,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(op::MatMul{{.m = kSide, .n = kSide, .k = 4},
                            x,
                            x + kCount,
                            nullptr,
                            m->Out()});
       }},
      {"SumRows", 1,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(op::SumRows{2, kCount, x, m->Out()});
       }},
      {"Conv2dForward", 1,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(
             op::Conv2dForward{kConvData, x, x + kCount, nullptr, m->Out()});
       }},
      {"Conv2dBackwardData", 1,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(op::Conv2dBackwardData{kConvData, x, x + kCount, m->Out()});
       }},
      {"Conv2dBackwardKernel", 2,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(op::Conv2dBackwardKernel{kConv, x, x, m->Out(0), m->Out(1)});
       }},
      {"PoolForward", 1,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(op::PoolForward{PoolKind::kMax, kPool, x, m->Out()});
       }},
      {"PoolBackward", 1,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(op::PoolBackward{PoolKind::kAverage, kPool, x, x + kCount,
                                  m->Out()});
       }},
      {"ActivationForward", 1,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(
             op::ActivationForward{ActivationKind::kTanh, kCount, x, m->Out()});
       }},
      {"ActivationBackward", 1,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(op::ActivationBackward{ActivationKind::kRelu, kCount, x,
                                        x + kCount, m->Out()});
       }},
      {"Dropout", 1,
       [](Multiplied* m, Backend* on, const float* x) {
         const uint64_t key = 1;
         on->SetKeys({&key, 1});
         on->Run(op::Dropout{0, 0.5f, kCount, x, m->Out()});
       }},
  };
}

std::vector<Operation> Norms() {
  return {
      {"LayerNormForward", 3,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(op::NormForward{NormOver::kRow, kCount, 1, 1.0f, x, x, x,
                                 m->Out(0), m->Out(1), m->Out(2)});
       }},
      {"LayerNormBackward", 3,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(op::NormBackward{NormOver::kRow, 1, kCount, x, x, x, x,
                                  x + kCount, m->Out(0), m->Out(1), m->Out(2)});
       }},
      {"BatchNormForward", 4,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(op::NormForward{NormOver::kColumn, 1, kCount, 1.0f, x, x, x,
                                 m->Out(0), m->Out(1), m->Out(2), m->Out(3)});
       }},
      {"BatchNormBackward", 3,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(op::NormBackward{NormOver::kColumn, 1, kCount, x, x, x, x,
                                  x + kCount, m->Out(0), m->Out(1), m->Out(2)});
       }},
      {"BatchNormInference", 1,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(op::NormInference{1, kCount, 1.0f, x, x, x, x, x, m->Out()});
       }},
  };
}

std::vector<Operation> CopiesAndLosses() {
  return {
      {"Add", 1,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(op::Add{kCount, x, x + kCount, m->Out()});
       }},
      {"CopyColumns", 1,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(op::CopyColumns{kSide, kSide, x, 2 * kSide, m->Out(), kSide});
       }},
      {"BytesToFloats", 1,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(op::BytesToFloats{kCount, reinterpret_cast<const uint8_t*>(x),
                                   x, m->Out()});
       }},
      {"Transpose", 1,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(op::Transpose{1, kSide, kSide, x, m->Out()});
       }},
      {"Loss", 3,
       [](Multiplied* m, Backend* on, const float* x) {
         on->Run(op::Loss{LossKind::kMeanSquaredError, kCount, 1, x, x + kCount,
                          m->Out(0), m->Out(1), m->Out(2)});
       }},
      {"Upload", 1,
       [](Multiplied* m, Backend*, const float*) { m->Upload(3); }},
      {"Stage", 1,
       [](Multiplied* m, Backend* on, const float*) {
         static const std::vector<float> host(kCount, 5.0f);
         on->Stage(m->Out(), host.data(), kCount);
       }},
  };
}

std::vector<Operation> Operations() {
  std::vector<Operation> all = ProductsAndPointwise();
  for (const std::vector<Operation>& some : {Norms(), CopiesAndLosses()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

TEST(CudaBackendTest, MultipliesWhatWasWrittenLast) {
  for (const Operation& operation : Operations()) {
    for (int output = 0; output < operation.outputs; ++output) {
      SCOPED_TRACE(std::string(operation.name) + ", output " +
                   std::to_string(output));
      Multiplied multiplied(output);
      operation.run(&multiplied, multiplied.backend.get(), multiplied.x);
      multiplied.Multiply();
      multiplied.ExpectProductOfNewValues();
    }
  }
}

TEST(CudaBackendTest, MultipliesWhatAReplayWrote) {
  Multiplied multiplied(0);
  Backend* const on = multiplied.backend.get();
  const auto add = [&] {
    on->Run(op::Add{kCount, multiplied.x, multiplied.x, multiplied.Out()});
  };
  add();
  ASSERT_TRUE(on->BeginCapture());
  add();
  const uint64_t mark = on->Mark();
  ASSERT_TRUE(on->EndCapture().ok());
  multiplied.Wait();
  multiplied.Upload(kOld);
  multiplied.Multiply();  // rounds the old values
  multiplied.Wait();
  on->Wait(on->Replay() + mark);
  multiplied.Multiply();
  multiplied.ExpectProductOfNewValues();
}

// A copy that a capture rounds is not rounded before the capture runs.
TEST(CudaBackendTest, RoundsBehindACaptureThatNeverRan) {
  Multiplied multiplied(0);
  multiplied.Upload(3.0f);
  multiplied.Wait();
  ASSERT_TRUE(multiplied.backend->BeginCapture());
  multiplied.Multiply();
  multiplied.backend->Mark();
  ASSERT_TRUE(multiplied.backend->EndCapture().ok());
  multiplied.Multiply();
  multiplied.ExpectProductOfNewValues();
}

// The capture begins with a copy that is as the tensor was then.
TEST(CudaBackendTest, RoundsInEveryReplay) {
  Multiplied multiplied(0);
  Backend* const on = multiplied.backend.get();
  ASSERT_TRUE(on->BeginCapture());
  multiplied.Multiply();
  const uint64_t mark = on->Mark();
  ASSERT_TRUE(on->EndCapture().ok());
  for (const float value : {3.0f, 5.0f}) {
    multiplied.Upload(value);
    on->Wait(on->Replay() + mark);
    multiplied.ExpectProductOfNewValues();
  }
}

}  // namespace
}  // namespace weir::cuda
