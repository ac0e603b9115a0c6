#include "tests/worker/compute/backend_contract.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "common/random.h"
#include "gmock/gmock.h"

namespace weir {

using reference::NormOver;
using reference::Values;

BackendContract::Input BackendContract::Exactly(
    const std::vector<float>& values) {
  hosts_.push_back(std::make_unique<std::vector<float>>(values));
  Input input;
  input.device = backend_->Allocate(values.size()).value();
  backend_->Upload(input.device, hosts_.back()->data(), values.size());
  input.values.assign(values.begin(), values.end());
  return input;
}

BackendContract::Input BackendContract::Random(uint64_t seed, int64_t count,
                                               float low, float high) {
  RandomStream random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = random.NextFloat(low, high);
  }
  return Exactly(values);
}

float* BackendContract::Output(int64_t count) {
  return Exactly(
             std::vector<float>(count, std::numeric_limits<float>::quiet_NaN()))
      .device;
}

std::vector<float> BackendContract::Read(const float* device, int64_t count) {
  std::vector<float> host(count);
  backend_->Download(host.data(), device, count);
  backend_->Wait(backend_->Mark());
  EXPECT_EQ(backend_->TakeStatus(), absl::OkStatus());
  return host;
}

void BackendContract::ExpectNear(const float* device, const Values& expected,
                                 const char* what) {
  const std::vector<float> actual = Read(device, expected.size());
  double difference = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(actual[i] - expected[i], 2);
    norm += std::pow(expected[i], 2);
  }
  EXPECT_LT(std::sqrt(difference), 1e-5 * std::max(std::sqrt(norm), 1e-3))
      << what;
}

TEST_P(BackendContract, MatMulMultipliesInEveryStorageOrder) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                                {3, 5, 7},
                                {1, 10, 33},
                                {17, 1, 5},
                                {64, 10, 129},
                                {65, 127, 31},
                                {128, 96, 256}}) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        const MatMulShape shape{m, n, k, transpose_a, transpose_b};
        SCOPED_TRACE(testing::Message() << m << " " << n << " " << k << " "
                                        << transpose_a << transpose_b);
        const Input a = Random(1, m * k);
        const Input b = Random(2, k * n);
        const Input bias = Random(3, n);
        float* c = Output(m * n);
        backend_->MatMul(shape, a.device, b.device, bias.device, c);
        ExpectNear(c, reference::MatMul(shape, a.values, b.values, bias.values),
                   "with bias");
        c = Output(m * n);
        backend_->MatMul(shape, a.device, b.device, nullptr, c);
        ExpectNear(c, reference::MatMul(shape, a.values, b.values, {}),
                   "without bias");
      }
    }
  }
}

TEST_P(BackendContract, SumRowsSumsColumns) {
  for (const auto& [rows, width] :
       {std::array<int64_t, 2>{1, 1}, {3, 7}, {65, 129}, {5000, 3}, {1, 70}}) {
    const Input x = Random(1, rows * width, 0.0f, 1.0f);
    float* sums = Output(width);
    backend_->SumRows(rows, width, x.device, sums);
    const Values ones(rows, 1.0);
    ExpectNear(
        sums,
        reference::MatMul({.m = 1, .n = width, .k = rows}, ones, x.values, {}),
        "sums");
  }
}

TEST_P(BackendContract, Conv2dForwardAndBackward) {
  for (const Conv2dShape& s : {Conv2dShape{1, 1, 1, 1, 1, 1, 1, 0},
                               Conv2dShape{2, 1, 7, 5, 3, 3, 1, 1},
                               Conv2dShape{3, 3, 9, 8, 5, 3, 2, 1},
                               Conv2dShape{2, 16, 8, 8, 32, 3, 1, 1},
                               Conv2dShape{1, 5, 6, 7, 17, 1, 1, 0},
                               Conv2dShape{2, 4, 11, 11, 8, 5, 3, 2},
                               Conv2dShape{1, 2, 3, 3, 4, 5, 1, 2},
                               Conv2dShape{4, 32, 14, 14, 64, 3, 1, 1}}) {
    SCOPED_TRACE(testing::Message()
                 << s.batch << " " << s.channels << " " << s.height << " "
                 << s.width << " " << s.filters << " " << s.kernel << " "
                 << s.stride << " " << s.padding);
    const int64_t x_count = s.batch * s.height * s.width * s.channels;
    const int64_t y_count =
        s.batch * s.out_height() * s.out_width() * s.filters;
    const int64_t k_count = s.filters * s.channels * s.kernel * s.kernel;
    const Input x = Random(1, x_count);
    const Input kernel = Random(2, k_count);
    const Input bias = Random(3, s.filters);
    const Input dy = Random(4, y_count);
    float* y = Output(y_count);
    backend_->Conv2dForward(s, x.device, kernel.device, bias.device, y);
    ExpectNear(y, reference::Conv2d(s, x.values, kernel.values, bias.values),
               "y");
    y = Output(y_count);
    backend_->Conv2dForward(s, x.device, kernel.device, nullptr, y);
    ExpectNear(y, reference::Conv2d(s, x.values, kernel.values, {}), "no bias");
    const reference::Conv2dGradients d =
        reference::Conv2dBackward(s, x.values, kernel.values, dy.values);
    float* dx = Output(x_count);
    backend_->Conv2dBackwardData(s, dy.device, kernel.device, dx);
    ExpectNear(dx, d.x, "dx");
    float* dkernel = Output(k_count);
    float* dbias = Output(s.filters);
    backend_->Conv2dBackwardKernel(s, x.device, dy.device, dkernel, dbias);
    ExpectNear(dkernel, d.kernel, "dkernel");
    ExpectNear(dbias, d.bias, "dbias");
    dkernel = Output(k_count);
    backend_->Conv2dBackwardKernel(s, x.device, dy.device, dkernel, nullptr);
    ExpectNear(dkernel, d.kernel, "dkernel alone");
  }
}

TEST_P(BackendContract, PoolForwardAndBackward) {
  for (const PoolKind kind : {PoolKind::kMax, PoolKind::kAverage}) {
    for (const PoolShape& s :
         {PoolShape{1, 1, 1, 1, 1, 1, 0}, PoolShape{2, 3, 5, 7, 2, 2, 0},
          PoolShape{2, 65, 6, 6, 3, 2, 1}, PoolShape{1, 130, 4, 5, 2, 1, 1},
          PoolShape{3, 16, 9, 9, 3, 4, 0}, PoolShape{4, 32, 14, 14, 2, 2, 0}}) {
      const Input x = Random(1, s.batch * s.height * s.width * s.channels);
      const int64_t y_count =
          s.batch * s.out_height() * s.out_width() * s.channels;
      const Input dy = Random(2, y_count);
      float* y = Output(y_count);
      backend_->PoolForward(kind, s, x.device, y);
      ExpectNear(y, reference::Pool(kind, s, x.values), "y");
      float* dx = Output(x.values.size());
      backend_->PoolBackward(kind, s, x.device, dy.device, dx);
      ExpectNear(dx, reference::PoolBackward(kind, s, x.values, dy.values),
                 "dx");
    }
  }
}

TEST_P(BackendContract, MaxPoolGivesTheGradientToTheFirstOfEquals) {
  const PoolShape s{1, 1, 2, 2, 2, 2, 0};
  const Input x = Exactly({1, 3, 3, 3});
  const Input dy = Exactly({5});
  float* dx = Output(4);
  backend_->PoolBackward(PoolKind::kMax, s, x.device, dy.device, dx);
  EXPECT_THAT(Read(dx, 4), testing::ElementsAre(0, 5, 0, 0));
}

TEST_P(BackendContract, NanPassesThroughReluAndMaxPool) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Input x = Exactly({nan, 1, 2, 3});
  float* y = Output(4);
  backend_->ActivationForward(ActivationKind::kRelu, 4, x.device, y);
  EXPECT_TRUE(std::isnan(Read(y, 4)[0]));
  y = Output(1);
  backend_->PoolForward(PoolKind::kMax, {1, 1, 2, 2, 2, 2, 0}, x.device, y);
  EXPECT_TRUE(std::isnan(Read(y, 1)[0]));
}

TEST_P(BackendContract, ActivationsForwardAndBackwardAlsoInPlace) {
  for (const ActivationKind kind :
       {ActivationKind::kRelu, ActivationKind::kSigmoid,
        ActivationKind::kTanh}) {
    for (const int64_t count : {1, 15, 1000}) {
      const Input x = Random(1, count, -6.0f, 6.0f);
      const Input dy = Random(2, count);
      float* y = Output(count);
      backend_->ActivationForward(kind, count, x.device, y);
      ExpectNear(y, reference::Activation(kind, x.values), "y");
      const Values expected =
          reference::ActivationBackward(kind, x.values, dy.values);
      float* dx = Output(count);
      backend_->ActivationBackward(kind, count, y, dy.device, dx);
      // 1 - y * y near saturation loses digits of y by nature.
      ExpectNear(dx, expected, "dx");
      backend_->ActivationBackward(kind, count, y, dy.device, dy.device);
      EXPECT_EQ(Read(dy.device, count), Read(dx, count));
      backend_->ActivationForward(kind, count, x.device, x.device);
      EXPECT_EQ(Read(x.device, count), Read(y, count));
    }
  }
}

TEST_P(BackendContract, DropoutMasksByPhilox) {
  const std::vector<uint64_t> keys = {7, 99};
  backend_->SetKeys(keys);
  for (const int64_t count : {1, 7, 1001}) {
    const Input x = Random(1, count);
    Values expected(count);
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t word = Philox(99, 0, i / 4)[i % 4];
      expected[i] = UnitFloat(word) >= 0.25f ? x.values[i] / 0.75 : 0.0;
    }
    float* y = Output(count);
    backend_->Dropout(1, 0.25f, count, x.device, y);
    ExpectNear(y, expected, "y");
    backend_->Dropout(1, 0.0f, count, x.device, y);
    ExpectNear(y, x.values, "rate 0");
    backend_->Dropout(1, 0.25f, count, x.device, x.device);
    ExpectNear(x.device, expected, "in place");
  }
}

TEST_P(BackendContract, LayerNormForwardAndBackward) {
  constexpr float kEpsilon = 1e-3f;
  for (const auto& [rows, width] :
       {std::array<int64_t, 2>{1, 1}, {1, 17}, {5, 3}, {33, 130}, {200, 64}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << width);
    const Input x = Random(1, rows * width, 1.0f, 3.0f);
    const Input scale = Random(2, width);
    const Input offset = Random(3, width);
    const Input dy = Random(4, rows * width);
    float* y = Output(rows * width);
    float* mean = Output(rows);
    float* rstd = Output(rows);
    backend_->LayerNormForward(rows, width, kEpsilon, x.device, scale.device,
                               offset.device, y, mean, rstd);
    ExpectNear(y,
               reference::Norm(NormOver::kRow, rows, width, kEpsilon, x.values,
                               scale.values, offset.values)
                   .y,
               "y");
    const reference::NormGradients d =
        reference::NormBackward(NormOver::kRow, rows, width, kEpsilon, x.values,
                                scale.values, dy.values);
    for (float* dx : {Output(rows * width), static_cast<float*>(nullptr)}) {
      float* dscale = Output(width);
      float* doffset = Output(width);
      backend_->LayerNormBackward(rows, width, x.device, scale.device, mean,
                                  rstd, dy.device, dx, dscale, doffset);
      if (dx != nullptr) {
        ExpectNear(dx, d.x, "dx");
      }
      ExpectNear(dscale, d.scale, "dscale");
      ExpectNear(doffset, d.offset, "doffset");
    }
  }
}

TEST_P(BackendContract, BatchNormForwardBackwardAndInference) {
  constexpr float kEpsilon = 1e-3f;
  for (const auto& [rows, channels] :
       {std::array<int64_t, 2>{1, 1}, {2, 17}, {5, 3}, {33, 130}, {7000, 6}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << channels);
    const Input x = Random(1, rows * channels, 1.0f, 3.0f);
    const Input scale = Random(2, channels);
    const Input offset = Random(3, channels);
    const Input dy = Random(4, rows * channels);
    float* y = Output(rows * channels);
    float* mean = Output(channels);
    float* rstd = Output(channels);
    float* variance = Output(channels);
    backend_->BatchNormForward(rows, channels, kEpsilon, x.device, scale.device,
                               offset.device, y, mean, rstd, variance);
    const reference::NormResult expected =
        reference::Norm(NormOver::kColumn, rows, channels, kEpsilon, x.values,
                        scale.values, offset.values);
    ExpectNear(y, expected.y, "y");
    ExpectNear(mean, expected.mean, "mean");
    Values unbiased = expected.variance;
    for (double& v : unbiased) {
      v *= rows > 1 ? static_cast<double>(rows) / (rows - 1) : 0.0;
    }
    ExpectNear(variance, unbiased, "variance");
    const reference::NormGradients d =
        reference::NormBackward(NormOver::kColumn, rows, channels, kEpsilon,
                                x.values, scale.values, dy.values);
    for (float* dx : {Output(rows * channels), static_cast<float*>(nullptr)}) {
      float* dscale = Output(channels);
      float* doffset = Output(channels);
      backend_->BatchNormBackward(rows, channels, x.device, scale.device, mean,
                                  rstd, dy.device, dx, dscale, doffset);
      if (dx != nullptr) {
        ExpectNear(dx, d.x, "dx");
      }
      ExpectNear(dscale, d.scale, "dscale");
      ExpectNear(doffset, d.offset, "doffset");
    }
    // With the batch's own biased statistics inference is the same function.
    std::vector<float> biased(expected.variance.begin(),
                              expected.variance.end());
    y = Output(rows * channels);
    backend_->BatchNormInference(rows, channels, kEpsilon, x.device,
                                 scale.device, offset.device, mean,
                                 Exactly(biased).device, y);
    ExpectNear(y, expected.y, "inference");
  }
}

TEST_P(BackendContract, AddCopyAndTranspose) {
  const Input a = Random(1, 1003);
  const Input b = Random(2, 1003);
  Values sum(1003);
  for (size_t i = 0; i < sum.size(); ++i) {
    sum[i] = a.values[i] + b.values[i];
  }
  float* y = Output(1003);
  backend_->Add(1003, a.device, b.device, y);
  ExpectNear(y, sum, "add");
  backend_->Add(1003, a.device, b.device, a.device);
  ExpectNear(a.device, sum, "add in place");

  const Input x = Exactly({1, 2, 3, 4, 5, 6});
  float* z = Output(8);
  backend_->CopyColumns(2, 2, x.device + 1, 3, z + 1, 4);
  const std::vector<float> copied = Read(z, 8);
  EXPECT_EQ(copied[1], 2);
  EXPECT_EQ(copied[2], 3);
  EXPECT_EQ(copied[5], 5);
  EXPECT_EQ(copied[6], 6);
  for (const int i : {0, 3, 4, 7}) {
    EXPECT_TRUE(std::isnan(copied[i]));
  }
  for (const auto& [batch, rows, columns] :
       {std::array<int64_t, 3>{1, 1, 1}, {2, 3, 5}, {3, 17, 33}}) {
    const Input t = Random(4, batch * rows * columns);
    float* out = Output(batch * rows * columns);
    backend_->Transpose(batch, rows, columns, t.device, out);
    const std::vector<float> actual = Read(out, batch * rows * columns);
    for (int64_t i = 0; i < batch * rows * columns; ++i) {
      const int64_t image = i / (rows * columns);
      const int64_t r = i / columns % rows;
      const int64_t c = i % columns;
      EXPECT_EQ(actual[(image * columns + c) * rows + r],
                static_cast<float>(t.values[i]));
    }
  }
}

TEST_P(BackendContract, LossesAndTheirGradients) {
  for (const LossKind kind :
       {LossKind::kSoftmaxCrossEntropy, LossKind::kSigmoidCrossEntropy,
        LossKind::kMeanSquaredError}) {
    for (const auto& [rows, classes] :
         {std::array<int64_t, 2>{1, 2}, {7, 3}, {64, 101}}) {
      const bool sigmoid = kind == LossKind::kSigmoidCrossEntropy;
      const bool squared = kind == LossKind::kMeanSquaredError;
      const int64_t width = sigmoid ? 1 : classes;
      const Input x = Random(1, rows * width, -5.0f, 5.0f);
      std::vector<float> label_values;
      RandomStream random(2);
      for (int64_t i = 0; i < (squared ? rows * width : rows); ++i) {
        label_values.push_back(squared ? random.NextFloat(-1.0f, 1.0f)
                                       : static_cast<float>(random.NextBelow(
                                             sigmoid ? 2 : width)));
      }
      const Input labels = Exactly(label_values);
      float* row_loss = Output(rows);
      float* correct = Output(rows);
      float* dx = Output(rows * width);
      backend_->Loss(kind, rows, width, x.device, labels.device, row_loss,
                     correct, dx);
      ExpectNear(
          row_loss,
          reference::LossRows(kind, rows, width, x.values, labels.values),
          "loss");
      ExpectNear(
          dx,
          reference::LossBackward(kind, rows, width, x.values, labels.values),
          "dx");
      backend_->Loss(kind, rows, width, x.device, labels.device, row_loss,
                     correct, nullptr);
    }
  }
}

TEST_P(BackendContract, LossesCountWhatIsRightAndBearLargeLogits) {
  const Input x = Exactly({1e4f, -1e4f, 0, 2, 2, 1});
  const Input labels = Exactly({0, 1});
  float* loss = Output(2);
  float* correct = Output(2);
  float* dx = Output(6);
  backend_->Loss(LossKind::kSoftmaxCrossEntropy, 2, 3, x.device, labels.device,
                 loss, correct, dx);
  EXPECT_EQ(Read(loss, 2)[0], 0.0f);
  EXPECT_THAT(Read(correct, 2), testing::ElementsAre(1, 0));  // first of equals
  for (const float d : Read(dx, 6)) {
    EXPECT_TRUE(std::isfinite(d));
  }
  const Input big = Exactly({1e4f, -1e4f, 3, -3});
  const Input binary = Exactly({0, 0, 1, 1});
  loss = Output(4);
  correct = Output(4);
  dx = Output(4);
  backend_->Loss(LossKind::kSigmoidCrossEntropy, 4, 1, big.device,
                 binary.device, loss, correct, dx);
  EXPECT_EQ(Read(loss, 4)[0], 1e4f);
  EXPECT_EQ(Read(loss, 4)[1], 0.0f);
  EXPECT_THAT(Read(correct, 4), testing::ElementsAre(0, 1, 1, 0));
}

TEST_P(BackendContract, MirrorsStagesAndFetchesHostMemory) {
  std::vector<float> host = {1, 2, 3};
  float* mirror = backend_->MirrorHost(host.data(), 3).value();
  backend_->Upload(mirror, host.data(), 3);
  float* y = Output(3);
  backend_->Add(3, mirror, mirror, y);
  EXPECT_THAT(Read(y, 3), testing::ElementsAre(2, 4, 6));
  backend_->Add(3, y, mirror, mirror);
  backend_->Download(host.data(), mirror, 3);
  backend_->Wait(backend_->Mark());
  EXPECT_THAT(host, testing::ElementsAre(3, 6, 9));
  backend_->Release(mirror);
  const float* staged = backend_->Stage(Output(3), host.data(), 3);
  y = Output(3);
  backend_->Add(3, staged, staged, y);
  std::vector<float> room(3);
  const float* fetched = backend_->Fetch(room.data(), y, 3);
  backend_->Wait(backend_->Mark());
  EXPECT_EQ(fetched[2], 18.0f);
}

// I1: the same products at another alignment, after other work, bit for bit.
TEST_P(BackendContract, GivesTheSameBitsWhereverBuffersLie) {
  const MatMulShape mat{33, 65, 130, false, true};
  const Conv2dShape conv{3, 16, 9, 9, 32, 3, 1, 1};
  const int64_t x_count = int64_t{3} * 16 * 81;
  const int64_t y_count = int64_t{3} * 32 * 81;
  std::set<std::vector<float>> products;
  std::set<std::vector<float>> kernels;
  for (int64_t shift = 0; shift < 5; ++shift) {
    const auto shifted = [&](uint64_t seed, int64_t count) {
      RandomStream random(seed);
      std::vector<float> values(shift, 0.0f);
      for (int64_t i = 0; i < count; ++i) {
        values.push_back(random.NextFloat(-1.0f, 1.0f));
      }
      return Exactly(values).device + shift;
    };
    float* c = Output(int64_t{33} * 65 + shift) + shift;
    backend_->MatMul(mat, shifted(1, int64_t{33} * 130),
                     shifted(2, int64_t{65} * 130), nullptr, c);
    products.insert(Read(c, int64_t{33} * 65));
    const int64_t k_count = int64_t{32} * 16 * 9;
    float* dkernel = Output(k_count + shift) + shift;
    float* dbias = Output(32);
    backend_->Conv2dBackwardKernel(conv, shifted(3, x_count),
                                   shifted(4, y_count), dkernel, dbias);
    kernels.insert(Read(dkernel, k_count));
  }
  EXPECT_EQ(products.size(), 1u);
  EXPECT_EQ(kernels.size(), 1u);
}

}  // namespace weir
