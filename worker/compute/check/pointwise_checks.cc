// Pools, activations, dropout, sums and copies.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "worker/compute/check/check_run.h"

namespace weir {
namespace {

using reference::Values;

constexpr PoolShape kPoolShapes[] = {
    {1, 1, 1, 1, 1, 1, 0},   {2, 3, 5, 7, 2, 2, 0},  {2, 65, 6, 6, 3, 2, 1},
    {1, 130, 4, 5, 2, 1, 1}, {3, 16, 9, 9, 3, 4, 0}, {1, 1, 3, 3, 3, 1, 0},
    {1, 1, 17, 1, 1, 2, 0},  {2, 5, 8, 8, 5, 3, 2},  {4, 32, 14, 14, 2, 2, 0},
    {1, 4, 20, 19, 17, 3, 2}};
constexpr PoolShape kLargePoolShapes[] = {{8, 64, 56, 56, 3, 2, 1},
                                          {4, 97, 35, 35, 2, 2, 0}};

// Windows with and without overlap, gaps between them, padding, and channels in
// numbers that vectors of 4 and of 64 do not divide.
void Pool(PoolKind kind, CheckRun* run) {
  for (const PoolShape& s : run->Cases(kPoolShapes, kLargePoolShapes)) {
    run->Begin(absl::StrCat(s.batch, "x", s.height, "x", s.width, "x",
                            s.channels, " by ", s.size, "x", s.size, " stride ",
                            s.stride, " padding ", s.padding));
    const int64_t x_count = s.x_elements();
    const int64_t y_count = s.y_elements();
    const CheckRun::Input x = run->Factors(x_count, y_count);
    const CheckRun::Input dy = run->Factors(y_count, y_count);
    float* y = run->Output(y_count);
    run->Run(op::PoolForward{kind, s, x.device, y});
    run->Near("y", y, reference::Pool(kind, s, x.values));
    float* dx = run->Output(x_count);
    run->Run(op::PoolBackward{kind, s, x.device, dy.device, dx});
    run->Near("dx", dx, reference::PoolBackward(kind, s, x.values, dy.values));
  }
}

void FirstOfEquals(CheckRun* run) {
  run->Begin("1x2x2x1 by 2x2");
  const CheckRun::Input x = run->Exactly({1, 3, 3, 3});
  float* dx = run->Output(4);
  run->Run(op::PoolBackward{PoolKind::kMax,
                            {1, 1, 2, 2, 2, 2, 0},
                            x.device,
                            run->Exactly({5}).device,
                            dx});
  run->Equal("dx", dx, {0, 5, 0, 0});
  // Padding is less than any value and never wins.
  run->Begin("1x2x2x1 by 3x3 padding 1");
  const CheckRun::Input low = run->Exactly({-7, -7, -7, -8});
  float* y = run->Output(1);
  run->Run(
      op::PoolForward{PoolKind::kMax, {1, 1, 2, 2, 3, 2, 1}, low.device, y});
  run->Equal("y", y, {-7});
  dx = run->Output(4);
  run->Run(op::PoolBackward{PoolKind::kMax,
                            {1, 1, 2, 2, 3, 2, 1},
                            low.device,
                            run->Exactly({5}).device,
                            dx});
  run->Equal("dx", dx, {5, 0, 0, 0});
}

void NanPassesThrough(CheckRun* run) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  run->Begin("relu 4");
  float* y = run->Output(4);
  run->Run(op::ActivationForward{ActivationKind::kRelu, 4,
                                 run->Exactly({nan, 1, -2, 3}).device, y});
  const std::vector<float> relu = run->Read(y, 4);
  run->Expect("y[0] is NaN", std::isnan(relu[0]));
  run->Equal("y behind it", y + 1, {1, 0, 3});
  for (int64_t position = 0; position < 4; ++position) {
    run->Begin(absl::StrCat("1x2x2x1 by 2x2, at ", position));
    std::vector<float> values = {0, 1, 2, 3};
    values[position] = nan;
    y = run->Output(1);
    run->Run(op::PoolForward{
        PoolKind::kMax, {1, 1, 2, 2, 2, 2, 0}, run->Exactly(values).device, y});
    run->Expect("y is NaN", std::isnan(run->Read(y, 1)[0]));
  }
}

void Activation(ActivationKind kind, CheckRun* run) {
  for (const int64_t count :
       run->Cases<int64_t>({1, 15, 1000, 65537}, {2000003})) {
    run->Begin(absl::StrCat(count));
    // Near saturation 1 - y * y loses the digits of y by nature. Among many
    // elements this does not weigh; few elements stay away from it.
    float range = 6.0f;
    if (count < 100) {
      range = 2.0f;
    }
    const CheckRun::Input x = run->Random(count, -range, range);
    const CheckRun::Input dy = run->Random(count);
    float* y = run->Output(count);
    run->Run(op::ActivationForward{kind, count, x.device, y});
    run->Near("y", y, reference::Activation(kind, x.values));
    float* dx = run->Output(count);
    run->Run(op::ActivationBackward{kind, count, y, dy.device, dx});
    run->Near("dx", dx,
              reference::ActivationBackward(kind, x.values, dy.values));
    // The contract lets dx be dy and y be x; the bits must be the same.
    run->Run(
        op::ActivationBackward{kind, count, y, dy.device, run->InPlace(dy)});
    run->Equal("dx in place", dy.device, run->Read(dx, count));
    run->Run(op::ActivationForward{kind, count, x.device, run->InPlace(x)});
    run->Equal("y in place", x.device, run->Read(y, count));
  }
}

void Dropout(CheckRun* run) {
  const std::vector<uint64_t> keys = {run->random()->Next64(),
                                      run->random()->Next64()};
  // Two keys, and the second is used: the index must count.
  run->backend()->SetKeys(keys);
  for (const int64_t count :
       run->Cases<int64_t>({1, 2, 7, 1001, 65537}, {2000003})) {
    for (const float rate : {0.0f, 0.25f, 0.9f}) {
      run->Begin(absl::StrCat(count, " rate ", rate));
      const CheckRun::Input x = run->Random(count);
      Values expected(count);
      for (int64_t i = 0; i < count; ++i) {
        const uint32_t word = Philox(keys[1], 0, i / 4)[i % 4];
        if (UnitFloat(word) >= rate) {
          expected[i] = x.values[i] / (1.0 - rate);
        }
      }
      float* y = run->Output(count);
      run->Run(op::Dropout{1, rate, count, x.device, y});
      run->Near("y", y, expected);
      run->Run(op::Dropout{1, rate, count, x.device, run->InPlace(x)});
      run->Equal("in place", x.device, run->Read(y, count));
    }
  }
}

void Add(CheckRun* run) {
  for (const int64_t count :
       run->Cases<int64_t>({1, 7, 1003, 65537}, {2000003})) {
    run->Begin(absl::StrCat(count));
    const CheckRun::Input a = run->Random(count);
    const CheckRun::Input b = run->Random(count);
    std::vector<float> sum(count);
    for (int64_t i = 0; i < count; ++i) {
      // The rounding of the exact sum is the only right result.
      sum[i] = static_cast<float>(a.values[i] + b.values[i]);
    }
    float* y = run->Output(count);
    run->Run(op::Add{count, a.device, b.device, y});
    run->Equal("y", y, sum);
    y = run->InPlace(
        run->Exactly(std::vector<float>(a.values.begin(), a.values.end())));
    run->Run(op::Add{count, y, b.device, y});
    run->Equal("in place of a", y, sum);
    run->Run(op::Add{count, a.device, b.device, run->InPlace(b)});
    run->Equal("in place of b", b.device, sum);
  }
}

void MultiplyAdd(CheckRun* run) {
  for (const int64_t count :
       run->Cases<int64_t>({1, 7, 1003, 65536}, {2000003})) {
    run->Begin(absl::StrCat(count));
    const CheckRun::Input a = run->Random(count);
    const CheckRun::Input b = run->Random(count);
    const CheckRun::Input c = run->Random(count);
    Values product(count);
    Values sum(count);
    for (int64_t i = 0; i < count; ++i) {
      product[i] = a.values[i] * b.values[i];
      sum[i] = product[i] + c.values[i];
    }
    float* y = run->Output(count);
    run->Run(op::MultiplyAdd{count, a.device, b.device, nullptr, y});
    run->Near("a * b", y, product);
    y = run->Output(count);
    run->Run(op::MultiplyAdd{count, a.device, b.device, c.device, y});
    run->NearSum("a * b + c", y, sum, product);
    // The output may be an operand: c, then a, which the check of c needs.
    y = run->InPlace(c);
    run->Run(op::MultiplyAdd{count, a.device, b.device, y, y});
    run->NearSum("over c", y, sum, product);
    y = run->InPlace(a);
    run->Run(op::MultiplyAdd{count, y, b.device, nullptr, y});
    run->Near("over a", y, product);
  }
}

// The device is its own peer, twice: every backend can be checked alone.
void ReduceFromPeers(CheckRun* run) {
  for (const int64_t count :
       run->Cases<int64_t>({1, 7, 1003, 65537}, {2000003})) {
    for (const float own_weight : {0.7f, 1.0f}) {
      run->Begin(absl::StrCat(count, " + own ", own_weight));
      const CheckRun::Input x = run->Random(count);
      const CheckRun::Input z = run->Random(count);
      const CheckRun::Input y = run->Random(count);
      const Backend::PeerTerm terms[] = {
          {.peer = run->backend(), .x = run->InPlace(x), .weight = 0.3f},
          {.peer = run->backend(), .x = run->InPlace(z), .weight = 0.9f}};
      Values expected(count);
      Values own(count);
      for (int64_t i = 0; i < count; ++i) {
        own[i] = static_cast<double>(own_weight) * y.values[i];
        expected[i] = own[i] +
                      static_cast<double>(terms[0].weight) * x.values[i] +
                      static_cast<double>(terms[1].weight) * z.values[i];
      }
      run->backend()->ReduceFromPeers(count, own_weight, run->InPlace(y),
                                      terms);
      run->NearSum("y", y.device, expected, own);
    }
  }
}

struct Window {
  int64_t rows, width, x_stride, y_stride;
};

constexpr Window kWindows[] = {{1, 1, 1, 1},    {2, 2, 3, 4},
                               {17, 5, 9, 7},   {300, 130, 257, 131},
                               {4099, 1, 3, 2}, {1, 4099, 4100, 4099},
                               {64, 64, 64, 64}};
constexpr Window kLargeWindows[] = {{4096, 511, 777, 513}};

void CopyColumns(CheckRun* run) {
  for (const auto& [rows, width, x_stride, y_stride] :
       run->Cases(kWindows, kLargeWindows)) {
    run->Begin(absl::StrCat(rows, "x", width, " from rows of ", x_stride,
                            " to rows of ", y_stride));
    // The window is at the right edge of both.
    const int64_t x_begin = x_stride - width;
    const int64_t y_begin = y_stride - width;
    const std::vector<float> x = run->Draw(rows * x_stride, -1.0f, 1.0f);
    std::vector<float> expected(rows * y_stride, CheckRun::Poison());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < width; ++c) {
        expected[r * y_stride + y_begin + c] = x[r * x_stride + x_begin + c];
      }
    }
    float* y = run->Output(rows * y_stride);
    run->Run(op::CopyColumns{rows, width, run->Exactly(x).device + x_begin,
                             x_stride, y + y_begin, y_stride});
    run->Equal("y, outside the window too", y, expected);
  }
}

constexpr int64_t kByteCounts[] = {1, 3, 4, 255, 4096, 5001};
constexpr int64_t kLargeByteCounts[] = {3 * 224 * 224};

void BytesToFloats(CheckRun* run) {
  for (const int64_t count : run->Cases(kByteCounts, kLargeByteCounts)) {
    run->Begin(absl::StrCat(count));
    const std::vector<float> table = run->Draw(256, -3.0f, 3.0f);
    // Whole floats: their bits are the bytes.
    std::vector<uint8_t> bytes((count + 3) / 4 * 4);
    for (uint8_t& byte : bytes) {
      byte = static_cast<uint8_t>(run->random()->NextBelow(256));
    }
    std::vector<float> packed(bytes.size() / 4);
    std::memcpy(packed.data(), bytes.data(), bytes.size());
    std::vector<float> expected(count);
    for (int64_t i = 0; i < count; ++i) {
      expected[i] = table[bytes[i]];
    }
    float* y = run->Output(count);
    run->Run(op::BytesToFloats{
        count, reinterpret_cast<const uint8_t*>(run->Exactly(packed).device),
        run->Exactly(table).device, y});
    run->Equal("y", y, expected);
  }
}

constexpr std::array<int64_t, 3> kTransposeShapes[] = {
    {1, 1, 1},   {2, 3, 5},  {3, 17, 33},  {1, 1, 100},
    {1, 100, 1}, {70, 1, 3}, {5, 129, 65}, {300, 4, 4}};
constexpr std::array<int64_t, 3> kLargeTransposeShapes[] = {{4, 1000, 1001}};

void Transpose(CheckRun* run) {
  for (const auto& [batch, rows, columns] :
       run->Cases(kTransposeShapes, kLargeTransposeShapes)) {
    run->Begin(absl::StrCat(batch, "x", rows, "x", columns));
    const int64_t count = batch * rows * columns;
    const std::vector<float> x = run->Draw(count, -1.0f, 1.0f);
    std::vector<float> expected(count);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t image = i / (rows * columns);
      const int64_t r = i / columns % rows;
      const int64_t c = i % columns;
      expected[(image * columns + c) * rows + r] = x[i];
    }
    float* y = run->Output(count);
    run->Run(op::Transpose{batch, rows, columns, run->Exactly(x).device, y});
    run->Equal("y", y, expected);
  }
}

}  // namespace

std::vector<OperationCheck> PointwiseChecks() {
  return {
      {"max pool", [](CheckRun* run) { Pool(PoolKind::kMax, run); }},
      {"average pool", [](CheckRun* run) { Pool(PoolKind::kAverage, run); }},
      {"max pool: first of equals", &FirstOfEquals},
      {"NaN through relu and max pool", &NanPassesThrough},
      {"relu", [](CheckRun* run) { Activation(ActivationKind::kRelu, run); }},
      {"sigmoid",
       [](CheckRun* run) { Activation(ActivationKind::kSigmoid, run); }},
      {"tanh", [](CheckRun* run) { Activation(ActivationKind::kTanh, run); }},
      {"dropout", &Dropout},
      {"add", &Add},
      {"multiply and add", &MultiplyAdd},
      {"reduce from peers", &ReduceFromPeers},
      {"copy columns", &CopyColumns},
      {"bytes to floats", &BytesToFloats},
      {"transpose", &Transpose}};
}

}  // namespace weir
