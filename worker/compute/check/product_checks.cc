// Products, column sums, convolutions.
#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "worker/compute/check/check_run.h"

namespace weir {
namespace {

using reference::Values;

// x [rows, columns] as it lies in memory where the operand is `transposed`.
std::vector<float> Stored(bool transposed, int64_t rows, int64_t columns,
                          const std::vector<float>& x) {
  if (!transposed) {
    return x;
  }
  std::vector<float> y(x.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      y[j * rows + i] = x[i * columns + j];
    }
  }
  return y;
}

// One size in every storage order, with and without bias; the reference is
// computed once.
void MatMulOf(int64_t m, int64_t n, int64_t k, CheckRun* run) {
  // Drawn as CheckRun::Factors draws: few results may not cancel.
  const float low = CheckRun::LowestFactor(m * n);
  const std::vector<float> a = run->Draw(m * k, low, 1.0f);
  const std::vector<float> b = run->Draw(k * n, low, 1.0f);
  const std::vector<float> bias = run->Draw(n, low, 1.0f);
  const Values product = reference::MatMul(
      {m, n, k}, Values(a.begin(), a.end()), Values(b.begin(), b.end()), {});
  Values sum = product;
  for (int64_t i = 0; i < m * n; ++i) {
    sum[i] += bias[i % n];
  }
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      run->Begin(absl::StrCat(m, "x", n, "x", k, transpose_a ? " A^T" : "",
                              transpose_b ? " B^T" : ""));
      const MatMulShape shape{m, n, k, transpose_a, transpose_b};
      const float* left = run->Exactly(Stored(transpose_a, m, k, a)).device;
      const float* right = run->Exactly(Stored(transpose_b, k, n, b)).device;
      float* c = run->Output(m * n);
      run->Run(op::MatMul{shape, left, right, run->Exactly(bias).device, c});
      run->Near("with bias", c, sum, run->product_bound());
      c = run->Output(m * n);
      run->Run(op::MatMul{shape, left, right, nullptr, c});
      run->Near("without bias", c, product, run->product_bound());
    }
  }
}

constexpr std::array<int64_t, 3> kMatMulShapes[] = {
    {1, 1, 1},      {1, 33, 1},     {1, 1, 129},   {17, 3, 5},
    {17, 1, 5},     {1, 10, 33},    {65, 127, 31}, {257, 129, 65},
    {128, 96, 256}, {512, 512, 512}};
constexpr std::array<int64_t, 3> kLargeMatMulShapes[] = {{1000, 10, 784},
                                                         {4096, 5, 3},
                                                         {1, 2048, 2049},
                                                         {129, 65, 8192},
                                                         {1024, 1024, 1024}};

// Vectors, products of one column, and odd sizes around those of tiles (32, 64,
// 128, 256).
void MatMul(CheckRun* run) {
  for (const auto& [m, n, k] : run->Cases(kMatMulShapes, kLargeMatMulShapes)) {
    MatMulOf(m, n, k, run);
  }
}

constexpr std::array<int64_t, 2> kSumShapes[] = {
    {1, 1},    {3, 7},    {65, 129}, {5000, 3}, {1, 70},
    {4097, 1}, {7, 1030}, {333, 65}, {1, 4099}};
constexpr std::array<int64_t, 2> kLargeSumShapes[] = {
    {100000, 10}, {3, 50000}, {8192, 1024}};

void SumRows(CheckRun* run) {
  for (const auto& [rows, width] : run->Cases(kSumShapes, kLargeSumShapes)) {
    run->Begin(absl::StrCat(rows, "x", width));
    // Positive terms: a sum of both signs may cancel.
    const CheckRun::Input x = run->Random(rows * width, 0.0f, 1.0f);
    float* sums = run->Output(width);
    run->Run(op::SumRows{rows, width, x.device, sums});
    run->Near("sums", sums,
              reference::MatMul({.m = 1, .n = width, .k = rows},
                                Values(rows, 1.0), x.values, {}));
  }
}

constexpr Conv2dShape kConvShapes[] = {
    {1, 1, 1, 1, 1, 1, 1, 0},    {2, 1, 7, 5, 3, 3, 1, 1},
    {3, 3, 9, 8, 5, 3, 2, 1},    {2, 16, 8, 8, 32, 3, 1, 1},
    {1, 5, 6, 7, 17, 1, 1, 0},   {2, 4, 11, 11, 8, 5, 3, 2},
    {1, 2, 3, 3, 4, 5, 1, 2},    {3, 7, 13, 10, 11, 1, 2, 0},
    {1, 65, 5, 5, 3, 3, 1, 0},   {5, 3, 17, 15, 33, 5, 1, 2},
    {2, 3, 32, 32, 16, 7, 2, 3}, {1, 1, 5, 5, 1, 5, 1, 0},
    {4, 32, 14, 14, 64, 3, 1, 1}};
constexpr Conv2dShape kLargeConvShapes[] = {{4, 64, 28, 28, 64, 3, 1, 1},
                                            {2, 3, 112, 112, 64, 7, 2, 3},
                                            {4, 96, 14, 14, 130, 3, 1, 1},
                                            {8, 64, 28, 28, 129, 1, 2, 0},
                                            // Here cuDNN transforms in fp32.
                                            {2, 64, 27, 27, 192, 5, 1, 2},
                                            {2, 192, 13, 13, 384, 3, 1, 1}};

std::string Describe(const Conv2dShape& s) {
  return absl::StrCat(s.batch, "x", s.height, "x", s.width, "x", s.channels,
                      " to ", s.filters, " by ", s.kernel, "x", s.kernel,
                      " stride ", s.stride, " padding ", s.padding);
}

void Conv2dForward(CheckRun* run) {
  for (const Conv2dShape& s : run->Cases(kConvShapes, kLargeConvShapes)) {
    run->Begin(Describe(s));
    const CheckRun::Input x = run->Factors(s.x_elements(), s.y_elements());
    const CheckRun::Input kernel =
        run->Factors(s.kernel_elements(), s.y_elements());
    const CheckRun::Input bias = run->Factors(s.filters, s.y_elements());
    Values expected = reference::Conv2d(s, x.values, kernel.values, {});
    float* y = run->Output(s.y_elements());
    run->Run(op::Conv2dForward{s, x.device, kernel.device, nullptr, y});
    run->Near("without bias", y, expected, run->product_bound());
    for (int64_t i = 0; i < s.y_elements(); ++i) {
      expected[i] += bias.values[i % s.filters];
    }
    y = run->Output(s.y_elements());
    run->Run(op::Conv2dForward{s, x.device, kernel.device, bias.device, y});
    run->Near("with bias", y, expected, run->product_bound());
  }
}

void Conv2dBackward(CheckRun* run) {
  for (const Conv2dShape& s : run->Cases(kConvShapes, kLargeConvShapes)) {
    run->Begin(Describe(s));
    // The three results are as large as these.
    const int64_t fewest =
        std::min({s.x_elements(), s.y_elements(), s.kernel_elements()});
    const CheckRun::Input x = run->Factors(s.x_elements(), fewest);
    const CheckRun::Input kernel = run->Factors(s.kernel_elements(), fewest);
    const CheckRun::Input dy = run->Factors(s.y_elements(), fewest);
    const reference::Conv2dGradients d =
        reference::Conv2dBackward(s, x.values, kernel.values, dy.values);
    float* dx = run->Output(s.x_elements());
    run->Run(op::Conv2dBackwardData{s, dy.device, kernel.device, dx});
    run->Near("dx", dx, d.x, run->product_bound());
    float* dkernel = run->Output(s.kernel_elements());
    float* dbias = run->Output(s.filters);
    run->Run(op::Conv2dBackwardKernel{s, x.device, dy.device, dkernel, dbias});
    run->Near("dkernel", dkernel, d.kernel, run->product_bound());
    // A sum of dy, which has both signs and may cancel.
    run->NearSum("dbias", dbias, d.bias, dy.values);
    dkernel = run->Output(s.kernel_elements());
    run->Run(
        op::Conv2dBackwardKernel{s, x.device, dy.device, dkernel, nullptr});
    run->Near("dkernel without dbias", dkernel, d.kernel, run->product_bound());
  }
}

}  // namespace

std::vector<OperationCheck> ProductChecks() {
  return {{"matmul", &MatMul},
          {"sum rows", &SumRows},
          {"conv2d", &Conv2dForward},
          {"conv2d gradients", &Conv2dBackward}};
}

}  // namespace weir
