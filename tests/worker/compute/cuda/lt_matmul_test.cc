// Products on the emulator's cuBLASLt. All values are small integers, so every
// result is exact.
#include "worker/compute/cuda/lt_matmul.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weir_cuda_emulator.h"
#include "worker/compute/check/reference.h"

namespace weir::cuda {
namespace {

using reference::Values;
using ::testing::HasSubstr;

Values Integers(int64_t count, int64_t step) {
  Values values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<double>(i * step % 7 - 3));
  }
  return values;
}

// Device memory of `values`, `offset` floats behind its aligned begin.
float* OnDevice(const Values& values, int64_t offset = 0) {
  const std::vector<float> floats(values.begin(), values.end());
  const size_t bytes = floats.size() * sizeof(float);
  float* memory = nullptr;
  EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), bytes + 1024),
            cudaSuccess);
  EXPECT_EQ(
      cudaMemcpy(memory + offset, floats.data(), bytes, cudaMemcpyHostToDevice),
      cudaSuccess);
  return memory + offset;
}

Values Read(const float* device, int64_t count) {
  std::vector<float> floats(static_cast<size_t>(count));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(floats.data(), device, floats.size() * sizeof(float),
                       cudaMemcpyDeviceToHost),
            cudaSuccess);
  return {floats.begin(), floats.end()};
}

struct Operands {
  explicit Operands(const MatMulShape& s)
      : a(Integers(s.m * s.k, 2)),
        b(Integers(s.k * s.n, 3)),
        bias(Integers(s.n, 5)),
        device_a(OnDevice(a)),
        device_b(OnDevice(b)),
        device_bias(OnDevice(bias)),
        device_c(OnDevice(Values(s.m * s.n, 1000.0))) {}
  LtMatMul::Inputs inputs() const { return {device_a, device_b, false}; }

  const Values a, b, bias;
  float* const device_a;
  float* const device_b;
  float* const device_bias;
  float* const device_c;
};

TEST(LtMatMulTest, MultipliesInEveryStorageOrderAndAddsTheBias) {
  weir_emulator::Configure({});
  const auto matmul = LtMatMul::Create(/*tf32=*/false).value();
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      const MatMulShape s{3, 5, 7, transpose_a, transpose_b};
      const Operands o(s);
      ASSERT_TRUE(matmul
                      ->Run(nullptr, s, o.inputs(), o.device_bias, o.device_c,
                            /*accumulate=*/false)
                      .ok());
      EXPECT_EQ(Read(o.device_c, 15), reference::MatMul(s, o.a, o.b, o.bias));
      ASSERT_TRUE(matmul
                      ->Run(nullptr, s, o.inputs(), nullptr, o.device_c,
                            /*accumulate=*/false)
                      .ok());
      EXPECT_EQ(Read(o.device_c, 15), reference::MatMul(s, o.a, o.b, {}));
    }
  }
}

TEST(LtMatMulTest, AddsToWhatIsThereWhereItShould) {
  weir_emulator::Configure({});
  const auto matmul = LtMatMul::Create(/*tf32=*/false).value();
  const MatMulShape s{2, 3, 4};
  const Operands o(s);
  ASSERT_TRUE(matmul
                  ->Run(nullptr, s, o.inputs(), nullptr, o.device_c,
                        /*accumulate=*/true)
                  .ok());
  Values expected = reference::MatMul(s, o.a, o.b, {});
  for (double& value : expected) {
    value += 1000.0;
  }
  EXPECT_EQ(Read(o.device_c, 6), expected);
}

// The plan keeps a pointer to the bias of its first call.
TEST(LtMatMulTest, AddsTheBiasOfTheCallAndNotOfThePlan) {
  weir_emulator::Configure({});
  const auto matmul = LtMatMul::Create(/*tf32=*/false).value();
  const MatMulShape s{2, 3, 4};
  const Operands o(s);
  const Values other = {10, 20, 30};
  for (const Values& bias : {o.bias, other}) {
    ASSERT_TRUE(matmul
                    ->Run(nullptr, s, o.inputs(), OnDevice(bias), o.device_c,
                          /*accumulate=*/false)
                    .ok());
    EXPECT_EQ(Read(o.device_c, 6), reference::MatMul(s, o.a, o.b, bias));
  }
}

TEST(LtMatMulTest, PlansAShapeOnceAndAllocatesNothingMore) {
  weir_emulator::Configure({});
  const auto matmul = LtMatMul::Create(/*tf32=*/false).value();
  const MatMulShape s{2, 3, 4};
  const Operands o(s);
  const MatMulShape wider{2, 5, 4};
  const Operands w(wider);
  const auto run = [&](const MatMulShape& shape, const Operands& operands) {
    return matmul->Run(nullptr, shape, operands.inputs(), nullptr,
                       operands.device_c, /*accumulate=*/false);
  };
  const int64_t calls = weir_emulator::Counts().malloc_calls;
  ASSERT_TRUE(run(s, o).ok());
  weir_emulator::FailNext(cudaErrorInvalidValue,
                          "cublasLtMatmulAlgoGetHeuristic");
  EXPECT_TRUE(run(s, o).ok());  // asks for no advice
  const absl::Status status = run(wider, w);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("plan of a product of [2, 4] and [4, 5]"));
  EXPECT_TRUE(run(wider, w).ok());  // the failed plan was not kept
  EXPECT_EQ(weir_emulator::Counts().malloc_calls, calls);
}

// The emulator refuses an algorithm on memory with less than its alignment.
TEST(LtMatMulTest, HasAnotherPlanForMemoryThatIsLessAligned) {
  weir_emulator::Configure({});
  const auto matmul = LtMatMul::Create(/*tf32=*/false).value();
  const MatMulShape s{4, 4, 4};
  const Operands o(s);
  for (const int64_t offset : {0, 4, 1}) {
    const LtMatMul::Inputs inputs = {OnDevice(o.a, offset), o.device_b, false};
    ASSERT_TRUE(matmul
                    ->Run(nullptr, s, inputs, nullptr, o.device_c,
                          /*accumulate=*/false)
                    .ok())
        << offset;
    EXPECT_EQ(Read(o.device_c, 16), reference::MatMul(s, o.a, o.b, {}));
  }
}

}  // namespace
}  // namespace weir::cuda
