// Weir's own convolutions on the emulator, against the naive ones in double.
// All values are small integers, so every result is exact, in bf16 as well.
#include "worker/compute/cuda/convolution.h"

#include <vector>

#include "gtest/gtest.h"
#include "weir_cuda_emulator.h"
#include "worker/compute/check/reference.h"

namespace weir::cuda {
namespace {

using reference::Values;

Values Integers(int64_t count, int64_t step) {
  Values values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<double>(i * step % 7 - 3));
  }
  return values;
}

float* OnDevice(const Values& values) {
  const std::vector<float> floats(values.begin(), values.end());
  float* memory = nullptr;
  EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory),
                       floats.size() * sizeof(float)),
            cudaSuccess);
  EXPECT_EQ(cudaMemcpy(memory, floats.data(), floats.size() * sizeof(float),
                       cudaMemcpyHostToDevice),
            cudaSuccess);
  return memory;
}

Values Read(const float* device, size_t count) {
  std::vector<float> floats(count);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(floats.data(), device, count * sizeof(float),
                       cudaMemcpyDeviceToHost),
            cudaSuccess);
  return {floats.begin(), floats.end()};
}

constexpr Conv2dShape kShapes[] = {
    {5, 3, 6, 5, 4, 3, 1, 1},  // windows overlap and reach into the padding
    {3, 4, 7, 7, 2, 3, 2, 0},  // a stride
    {4, 5, 3, 4, 6, 1, 1, 0},  // pointwise: the columns are the image
    {2, 1, 3, 3, 1, 5, 1, 2},  // a kernel that is larger than the image
};

// One shape, computed in parts of at most `column_bytes_max`.
class Case {
 public:
  Case(const Conv2dShape& shape, int64_t column_bytes_max, bool bf16)
      : s(shape),
        x(Integers(s.batch * s.height * s.width * s.channels, 2)),
        kernel(Integers(s.filters * s.channels * s.kernel * s.kernel, 3)),
        bias(Integers(s.filters, 5)),
        dy(Integers(s.batch * s.out_height() * s.out_width() * s.filters, 3)) {
    weir_emulator::Configure({});
    matmul_ = LtMatMul::Create(/*tf32=*/false).value();
    Convolution::Options options{.matmul = matmul_.get(),
                                 .column_bytes_max = column_bytes_max};
    if (bf16) {
      options.copies = &copies_;
    }
    convolution = std::make_unique<Convolution>(options);
  }

  Values Forward() {
    float* const y = OnDevice(Values(dy.size(), 1000.0));
    EXPECT_TRUE(
        convolution
            ->Run(nullptr, op::Conv2dForward{s, OnDevice(x), OnDevice(kernel),
                                             OnDevice(bias), y})
            .ok());
    return Read(y, dy.size());
  }
  Values BackwardData() {
    float* const dx = OnDevice(Values(x.size(), 1000.0));
    EXPECT_TRUE(convolution
                    ->Run(nullptr, op::Conv2dBackwardData{s, OnDevice(dy),
                                                          OnDevice(kernel), dx})
                    .ok());
    return Read(dx, x.size());
  }
  Values BackwardKernel() {
    float* const dkernel = OnDevice(Values(kernel.size(), 1000.0));
    EXPECT_TRUE(
        convolution
            ->Run(nullptr, op::Conv2dBackwardKernel{s, OnDevice(x),
                                                    OnDevice(dy), dkernel,
                                                    /*dbias=*/nullptr})
            .ok());
    return Read(dkernel, kernel.size());
  }

  const Conv2dShape s;
  const Values x, kernel, bias, dy;

 private:
  Bf16Copies copies_;
  std::unique_ptr<LtMatMul> matmul_;

 public:
  std::unique_ptr<Convolution> convolution;
};

TEST(ConvolutionTest, IsTheNaiveOneInPartsAndWhole) {
  for (const Conv2dShape& shape : kShapes) {
    for (const int64_t bytes : {int64_t{1}, Convolution::kColumnBytesMax}) {
      for (const bool bf16 : {false, true}) {
        SCOPED_TRACE(testing::Message() << shape.kernel << ", parts of "
                                        << bytes << ", bf16 " << bf16);
        Case c(shape, bytes, bf16);
        EXPECT_EQ(c.Forward(), reference::Conv2d(shape, c.x, c.kernel, c.bias));
        const reference::Conv2dGradients d =
            reference::Conv2dBackward(shape, c.x, c.kernel, c.dy);
        EXPECT_EQ(c.BackwardData(), d.x);
        EXPECT_EQ(c.BackwardKernel(), d.kernel);
      }
    }
  }
}

TEST(ConvolutionTest, TakesNoMoreScratchThanAPartNeeds) {
  const Conv2dShape s = kShapes[0];
  const int64_t window = s.kernel * s.kernel * s.channels;
  const int64_t kernel_bytes = s.filters * window * 4;
  const int64_t image_bytes = s.out_height() * s.out_width() * window * 4;
  const auto scratch_bytes = [&](int64_t column_bytes_max) {
    Case c(s, column_bytes_max, /*bf16=*/false);
    c.Forward();
    return c.convolution->scratch_bytes() - kernel_bytes;
  };
  // Two images fit, three do not; one is computed whatever the bound says.
  EXPECT_EQ(scratch_bytes(3 * image_bytes - 1), 2 * image_bytes);
  EXPECT_EQ(scratch_bytes(1), image_bytes);
  EXPECT_EQ(scratch_bytes(Convolution::kColumnBytesMax), s.batch * image_bytes);
}

TEST(ConvolutionTest, UnfoldsNothingForAPointwiseOne) {
  const Conv2dShape s = kShapes[2];
  Case c(s, 1, /*bf16=*/false);
  c.Forward();
  EXPECT_EQ(c.convolution->scratch_bytes(), s.filters * s.channels * 4);
}

}  // namespace
}  // namespace weir::cuda
