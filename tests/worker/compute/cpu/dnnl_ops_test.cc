#include "worker/compute/cpu/dnnl_ops.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/compute/cpu/values.h"
#include "worker/compute/check/reference.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

std::vector<float> Product(DnnlOps* ops, const MatMulShape& s,
                           const std::vector<float>& a,
                           const std::vector<float>& b, const float* bias) {
  std::vector<float> c(static_cast<size_t>(s.m * s.n), 1000.0f);
  EXPECT_TRUE(ops->Run(op::MatMul{s, a.data(), b.data(), bias, c.data()}).ok());
  return c;
}

TEST(DnnlOpsTest, MultipliesInEveryStorageOrderWithAndWithoutBias) {
  const auto ops = DnnlOps::Create(1).value();
  const std::vector<float> a = Draw(1, 5 * 7, 0.1f);
  const std::vector<float> b = Draw(2, 7 * 3, 0.1f);
  const std::vector<float> bias = Draw(3, 3, 0.1f);
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      const MatMulShape s{5, 3, 7, transpose_a, transpose_b};
      // Twice: the second call finds its primitive.
      for (int time = 0; time < 2; ++time) {
        ExpectNear(Product(ops.get(), s, a, b, bias.data()),
                   reference::MatMul(s, Doubles(a), Doubles(b), Doubles(bias)));
        ExpectNear(Product(ops.get(), s, a, b, nullptr),
                   reference::MatMul(s, Doubles(a), Doubles(b), {}));
      }
    }
  }
}

// Each call has other memory than the one that made the primitive.
TEST(DnnlOpsTest, ConvolvesWithTheMemoryOfTheCall) {
  const auto ops = DnnlOps::Create(1).value();
  const Conv2dShape s{2, 5, 7, 6, 19, 3, 2, 1};
  const int64_t x_count = s.batch * s.height * s.width * s.channels;
  const int64_t y_count = s.batch * s.out_height() * s.out_width() * s.filters;
  const int64_t kernel_count = s.filters * s.channels * s.kernel * s.kernel;
  for (uint64_t seed = 1; seed < 40; seed += 10) {
    const std::vector<float> x = Draw(seed, x_count);
    const std::vector<float> kernel = Draw(seed + 1, kernel_count);
    const std::vector<float> bias = Draw(seed + 2, s.filters);
    const std::vector<float> dy = Draw(seed + 3, y_count);
    std::vector<float> y(dy.size()), dx(x.size()), dkernel(kernel.size());
    std::vector<float> dbias(bias.size());
    ASSERT_TRUE(ops->Run(op::Conv2dForward{s, x.data(), kernel.data(),
                                           bias.data(), y.data()})
                    .ok());
    ExpectNear(
        y, reference::Conv2d(s, Doubles(x), Doubles(kernel), Doubles(bias)));
    const reference::Conv2dGradients d =
        reference::Conv2dBackward(s, Doubles(x), Doubles(kernel), Doubles(dy));
    ASSERT_TRUE(
        ops->Run(op::Conv2dBackwardData{s, dy.data(), kernel.data(), dx.data()})
            .ok());
    ExpectNear(dx, d.x);
    ASSERT_TRUE(ops->Run(op::Conv2dBackwardKernel{s, x.data(), dy.data(),
                                                  dkernel.data(), dbias.data()})
                    .ok());
    ExpectNear(dkernel, d.kernel);
    ExpectNear(dbias, d.bias);
  }
}

// The scratch of all primitives is one, and moves when a larger one comes.
TEST(DnnlOpsTest, HasTheSameBitsAfterALargerShape) {
  const auto ops = DnnlOps::Create(2).value();
  const MatMulShape small{33, 17, 65};
  const std::vector<float> a = Draw(1, small.m * small.k);
  const std::vector<float> b = Draw(2, small.k * small.n);
  const std::vector<float> before = Product(ops.get(), small, a, b, nullptr);
  for (const int64_t side : {100, 400}) {
    const std::vector<float> x = Draw(3, side * side);
    Product(ops.get(), {side, side, side, true, true}, x, x, nullptr);
  }
  EXPECT_EQ(Product(ops.get(), small, a, b, nullptr), before);
}

TEST(DnnlOpsTest, NamesTheOperationThatOneDnnRefused) {
  const auto ops = DnnlOps::Create(1).value();
  float x[16] = {};
  float y[16] = {};
  const Conv2dShape too_large{1, 1, 1, 1, 1, 3, 1, 0};  // of a 1 x 1 image
  const absl::Status status =
      ops->Run(op::Conv2dForward{too_large, x, x, nullptr, y});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("oneDNN convolution: "));
  // What failed is not kept: other shapes go on.
  EXPECT_TRUE(
      ops->Run(op::Conv2dForward{{1, 1, 1, 1, 1, 1, 1, 0}, x, x, nullptr, y})
          .ok());
}

}  // namespace
}  // namespace weir
