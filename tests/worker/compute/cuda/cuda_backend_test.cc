// The CUDA backend on the emulator: every check of the contract in every
// precision, then what is CUDA's own: streams, capture, memory, errors.
#include "worker/compute/cuda/cuda_backend.h"

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
    backend->Add(100, x, x, x);
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
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("bytes asked"));
  }
  EXPECT_TRUE(backend->TakeStatus().ok());
  // What did not work leaves nothing behind.
  float* const x = backend->Allocate(4).value();
  backend->Add(4, x, x, x);
  backend->Wait(backend->Mark());
  EXPECT_TRUE(backend->TakeStatus().ok());
}

TEST(CudaBackendTest, KeepsTheFirstFailure) {
  const auto backend = Fp32();
  float* const x = backend->Allocate(4).value();
  weir_emulator::FailNext(cudaErrorInvalidConfiguration, "Launch");
  backend->Add(4, x, x, x);
  backend->Wait(backend->Mark());
  const absl::Status status = backend->TakeStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("add"));
  EXPECT_TRUE(backend->TakeStatus().ok());
}

// A host that looks in between finds nothing, and its look is no failure.
TEST(CudaBackendTest, ReachesMarksInTheirOrder) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    weir_emulator::Configure({.seed = seed});
    const auto backend = CudaBackend::Create({}).value();
    std::vector<float> host(64, 1.0f);
    float* const x = backend->MirrorHost(host.data(), 64).value();
    backend->Upload(x, host.data(), 64);
    std::vector<uint64_t> marks;
    for (int i = 0; i < 4; ++i) {
      backend->Add(64, x, x, x);
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

}  // namespace
}  // namespace weir::cuda
