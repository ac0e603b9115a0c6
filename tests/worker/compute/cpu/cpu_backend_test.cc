#include "worker/compute/cpu/cpu_backend.h"

#include "gtest/gtest.h"
#include "tests/worker/compute/backend_contract.h"

namespace weir {
namespace {

std::unique_ptr<Backend> OneThread() { return CpuBackend::Create(1).value(); }
std::unique_ptr<Backend> TwoThreads() { return CpuBackend::Create(2).value(); }

INSTANTIATE_TEST_SUITE_P(Cpu, BackendContract,
                         EveryCheck({{"OneThread", &OneThread},
                                     {"TwoThreads", &TwoThreads}}),
                         BackendContract::Name);

TEST(CpuBackendTest, CostsNoCopyToReachHostMemory) {
  const auto backend = OneThread();
  float host[4] = {};
  EXPECT_TRUE(backend->shares_host_memory());
  EXPECT_EQ(backend->MirrorHost(host, 4).value(), host);
  EXPECT_EQ(backend->Stage(nullptr, host, 4), host);
  EXPECT_EQ(backend->Fetch(nullptr, host, 4), host);
}

TEST(CpuBackendTest, AlignsMemoryAndRefusesWhatThereIsNot) {
  const auto backend = OneThread();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(backend->Allocate(3).value()) % 64, 0u);
  EXPECT_EQ(backend->Allocate(int64_t{1} << 58).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(CpuBackendTest, KeepsTheFirstFailureForTakeStatus) {
  const auto backend = OneThread();
  // oneDNN refuses a kernel that does not fit the image.
  float x[4] = {};
  backend->Run(op::Conv2dForward{{1, 1, 1, 1, 1, 3, 1, 0}, x, x, nullptr, x});
  EXPECT_EQ(backend->TakeStatus().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(backend->TakeStatus().ok());
}

}  // namespace
}  // namespace weir
