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

INSTANTIATE_TEST_SUITE_P(
    Cuda, BackendContract,
    EveryCheck({{"Fp32", &Fp32, Precision::kFp32},
                {"Tf32", &Tf32, Precision::kTf32},
                {"Bf16", &Bf16Mixed, Precision::kBf16}}),
    BackendContract::Name);

}  // namespace
}  // namespace weir::cuda

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
