#include "worker/compute/cuda/bf16_copies.h"

#include <bit>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weir_cuda_emulator.h"

namespace weir::cuda {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr int64_t kCount = 8;

// A tensor of kCount floats, and what reads its copies.
class Tensor {
 public:
  explicit Tensor(weir_emulator::Config config = {}) {
    weir_emulator::Configure(config);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMalloc(reinterpret_cast<void**>(&x), kCount * sizeof(float));
    Write(std::vector<float>(kCount, 1.0f));
  }

  // Does not tell the copies, as the backend would.
  void Write(const std::vector<float>& values) {
    ASSERT_EQ(cudaMemcpyAsync(x, values.data(), values.size() * sizeof(float),
                              cudaMemcpyHostToDevice, stream),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  }

  std::vector<float> Read(Bf16Copies* copies, int64_t count = kCount) const {
    const Bf16* const copy = copies->Of(stream, x, count).value();
    std::vector<Bf16> bits(static_cast<size_t>(count));
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(bits.data(), copy, bits.size() * sizeof(Bf16),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    std::vector<float> values;
    for (const Bf16 b : bits) {
      values.push_back(std::bit_cast<float>(uint32_t{b} << 16));
    }
    return values;
  }

  cudaStream_t stream = nullptr;
  float* x = nullptr;
};

TEST(Bf16CopiesTest, RoundsToTheNearestAndTiesToEven) {
  Tensor tensor;
  Bf16Copies copies;
  // bfloat16 has 8 bits: 1 + 1/128 is the next after 1.
  tensor.Write({1.0f + 1.0f / 256, 1.0f + 3.0f / 256, 1.0f + 1.0f / 200, -2.5f,
                0.0f, 1e30f, 3.0f, 4.0f});
  const std::vector<float> got = tensor.Read(&copies, 4);
  EXPECT_THAT(got,
              ElementsAre(1.0f, 1.0f + 2.0f / 128, 1.0f + 1.0f / 128, -2.5f));
}

TEST(Bf16CopiesTest, RoundsOnceHoweverOftenItIsAsked) {
  Tensor tensor;
  Bf16Copies copies;
  EXPECT_THAT(tensor.Read(&copies), Each(1.0f));
  const int64_t launches = weir_emulator::Counts().launches;
  // Nobody reported this write, so the copy stays as it was.
  tensor.Write(std::vector<float>(kCount, 2.0f));
  EXPECT_THAT(tensor.Read(&copies), Each(1.0f));
  EXPECT_THAT(tensor.Read(&copies, 3), Each(1.0f));
  EXPECT_EQ(weir_emulator::Counts().launches, launches);
  copies.OnWriteAll();
  EXPECT_THAT(tensor.Read(&copies), Each(2.0f));
}

// I1, for writes that only touch the tensor.
TEST(Bf16CopiesTest, IsStaleAfterAWriteThatOverlaps) {
  struct Range {
    int64_t begin, count;
    bool overlaps;
  };
  for (const Range& range :
       {Range{0, kCount, true}, Range{kCount - 1, 1, true}, Range{-3, 4, true},
        Range{-4, 100, true}, Range{kCount, 5, false}, Range{-3, 3, false}}) {
    Tensor tensor;
    Bf16Copies copies;
    tensor.Read(&copies);
    tensor.Write(std::vector<float>(kCount, 2.0f));
    copies.OnWrite(tensor.x + range.begin, range.count);
    float expected = 1.0f;
    if (range.overlaps) {
      expected = 2.0f;
    }
    EXPECT_THAT(tensor.Read(&copies), Each(expected))
        << range.begin << ", " << range.count;
  }
}

TEST(Bf16CopiesTest, RoundsAllWhenMoreElementsAreAskedFor) {
  Tensor tensor;
  Bf16Copies copies;
  EXPECT_THAT(tensor.Read(&copies, 2), Each(1.0f));
  EXPECT_EQ(copies.bytes(), 4);
  EXPECT_THAT(tensor.Read(&copies, kCount), Each(1.0f));
  EXPECT_EQ(copies.bytes(), 16);
  // A part that was rounded again does not make the rest fresh.
  tensor.Write(std::vector<float>(kCount, 2.0f));
  copies.OnWrite(tensor.x, kCount);
  EXPECT_THAT(tensor.Read(&copies, 2), Each(2.0f));
  EXPECT_THAT(tensor.Read(&copies, kCount), Each(2.0f));
}

TEST(Bf16CopiesTest, ForgetsWithTheMemory) {
  Tensor tensor;
  Bf16Copies copies;
  tensor.Read(&copies);
  const int64_t blocks = weir_emulator::Counts().device_blocks;
  copies.Forget(tensor.x + kCount, 1);
  EXPECT_EQ(copies.bytes(), 16);
  copies.Forget(tensor.x, kCount);
  EXPECT_EQ(copies.bytes(), 0);
  EXPECT_EQ(weir_emulator::Counts().device_blocks, blocks - 1);
}

TEST(Bf16CopiesTest, SaysThatThereIsNoMemory) {
  Tensor tensor({.bytes_per_device = 4096});
  Bf16Copies copies;
  EXPECT_EQ(copies.Of(tensor.stream, tensor.x, 1 << 20).status().code(),
            absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace weir::cuda
