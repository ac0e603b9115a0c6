// Norms over rows and columns, losses.
#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "worker/compute/check/check_run.h"

namespace weir {
namespace {

using reference::Values;

constexpr float kEpsilon = 1e-3f;

struct NormCase {
  int64_t rows, width;
  // x is drawn from [low, low + 2). Far from zero, a variance that is computed
  // as the mean of squares less the square of the mean would show.
  float low = 1.0f;
};

std::string Describe(const NormCase& c) {
  std::string text = absl::StrCat(c.rows, "x", c.width);
  if (c.low > 1.0f) {
    absl::StrAppend(&text, " about ", c.low + 1);
  }
  return text;
}

// The terms of which the gradients of x, of scale and of offset are sums. These
// sums cancel by nature.
struct NormTerms {
  Values x, scale, offset;
};

NormTerms TermsOf(NormOver over, const NormCase& c, const Values& x,
                  const Values& scale, const Values& dy) {
  const reference::NormResult plain =
      reference::Norm(over, c.rows, c.width, kEpsilon, x, Values(c.width, 1.0),
                      Values(c.width, 0.0));
  NormTerms terms{Values(x.size()), Values(x.size()), dy};
  for (size_t i = 0; i < x.size(); ++i) {
    size_t group = i % c.width;
    if (over == NormOver::kRow) {
      group = i / c.width;
    }
    terms.x[i] = dy[i] * scale[i % c.width] /
                 std::sqrt(plain.variance[group] + kEpsilon);
    terms.scale[i] = dy[i] * plain.y[i];
  }
  return terms;
}

struct NormInputs {
  CheckRun::Input x, scale, offset, dy;
};

NormInputs DrawNorm(const NormCase& c, CheckRun* run) {
  return {run->Random(c.rows * c.width, c.low, c.low + 2.0f),
          run->Scale(c.width), run->Scale(c.width),
          run->Random(c.rows * c.width)};
}

void CheckGradients(const NormCase& c, const NormInputs& in,
                    const op::NormForward& forward, CheckRun* run) {
  const NormOver over = forward.over;
  const reference::NormGradients d =
      reference::NormBackward(over, c.rows, c.width, kEpsilon, in.x.values,
                              in.scale.values, in.dy.values);
  const NormTerms terms =
      TermsOf(over, c, in.x.values, in.scale.values, in.dy.values);
  for (const bool with_dx : {true, false}) {
    // Without dx the others must not change: the first layer asks for none.
    float* dx = nullptr;
    std::string suffix = " without dx";
    if (with_dx) {
      dx = run->Output(c.rows * c.width);
      suffix = "";
    }
    float* dscale = run->Output(c.width);
    float* doffset = run->Output(c.width);
    run->Run(op::NormBackward{over, c.rows, c.width, forward.x, forward.scale,
                              forward.mean, forward.rstd, in.dy.device, dx,
                              dscale, doffset});
    if (with_dx) {
      run->NearSum("dx", dx, d.x, terms.x);
    }
    run->NearSum(("dscale" + suffix).c_str(), dscale, d.scale, terms.scale);
    run->NearSum(("doffset" + suffix).c_str(), doffset, d.offset, terms.offset);
  }
}

void Norm(NormOver over, const NormCase& c, CheckRun* run) {
  run->Begin(Describe(c));
  const NormInputs in = DrawNorm(c, run);
  const reference::NormResult expected =
      reference::Norm(over, c.rows, c.width, kEpsilon, in.x.values,
                      in.scale.values, in.offset.values);
  const int64_t groups = std::ssize(expected.mean);
  op::NormForward forward{.over = over,
                          .rows = c.rows,
                          .width = c.width,
                          .epsilon = kEpsilon,
                          .x = in.x.device,
                          .scale = in.scale.device,
                          .offset = in.offset.device,
                          .y = run->Output(c.rows * c.width),
                          .mean = run->Output(groups),
                          .rstd = run->Output(groups)};
  if (over == NormOver::kColumn) {
    forward.variance = run->Output(c.width);
  }
  run->Run(forward);
  run->Near("y", forward.y, expected.y);
  run->Near("mean", forward.mean, expected.mean);
  if (over == NormOver::kColumn) {
    // n / (n - 1); the variance of a single row is 0 by contract.
    double correction = 0.0;
    if (c.rows > 1) {
      correction =
          static_cast<double>(c.rows) / static_cast<double>(c.rows - 1);
    }
    Values unbiased = expected.variance;
    for (double& v : unbiased) {
      v *= correction;
    }
    run->Near("variance", forward.variance, unbiased);
  }
  CheckGradients(c, in, forward, run);
}

constexpr NormCase kLayerNormCases[] = {{1, 1},    {1, 17},   {5, 3},
                                        {5, 1},    {33, 130}, {200, 64},
                                        {3, 1025}, {4100, 7}, {9, 257, 10}};
constexpr NormCase kLargeLayerNormCases[] = {
    {2048, 1024}, {70000, 5}, {2, 50001}};

void LayerNorm(CheckRun* run) {
  for (const NormCase& c : run->Cases(kLayerNormCases, kLargeLayerNormCases)) {
    Norm(NormOver::kRow, c, run);
  }
}

constexpr NormCase kBatchNormCases[] = {{1, 1},    {1, 5},    {2, 17},
                                        {5, 3},    {9, 1},    {33, 130},
                                        {9, 1027}, {7000, 6}, {257, 9, 10}};
constexpr NormCase kLargeBatchNormCases[] = {
    {50176, 64}, {100001, 3}, {64, 8192}};

void BatchNorm(CheckRun* run) {
  for (const NormCase& c : run->Cases(kBatchNormCases, kLargeBatchNormCases)) {
    Norm(NormOver::kColumn, c, run);
  }
}

void BatchNormInference(CheckRun* run) {
  for (const NormCase& c : run->Cases(kBatchNormCases, kLargeBatchNormCases)) {
    run->Begin(Describe(c));
    const CheckRun::Input x =
        run->Random(c.rows * c.width, c.low, c.low + 2.0f);
    const CheckRun::Input scale = run->Scale(c.width);
    const CheckRun::Input offset = run->Scale(c.width);
    // Not the statistics of x: those are of another time, and y may be far from
    // standard.
    const CheckRun::Input mean = run->Random(c.width, 0.0f, 1.0f);
    const CheckRun::Input variance = run->Random(c.width, 0.0f, 2.0f);
    Values expected(c.rows * c.width);
    Values terms(c.rows * c.width);
    for (size_t i = 0; i < expected.size(); ++i) {
      const size_t j = i % c.width;
      const double factor =
          scale.values[j] / std::sqrt(variance.values[j] + kEpsilon);
      expected[i] = (x.values[i] - mean.values[j]) * factor + offset.values[j];
      terms[i] = std::fabs(x.values[i] * factor) + std::fabs(offset.values[j]);
    }
    float* y = run->Output(c.rows * c.width);
    run->Run(op::NormInference{c.rows, c.width, kEpsilon, x.device,
                               scale.device, offset.device, mean.device,
                               variance.device, y});
    run->NearSum("y", y, expected, terms);
  }
}

// ------------------------------------------------------------- losses

std::vector<float> DrawLabels(LossKind kind, int64_t rows, int64_t width,
                              CheckRun* run) {
  if (kind == LossKind::kMeanSquaredError) {
    return run->Draw(rows * width, -1.0f, 1.0f);
  }
  auto classes = static_cast<uint32_t>(width);
  if (kind == LossKind::kSigmoidCrossEntropy) {
    classes = 2;
  }
  std::vector<float> labels(rows);
  for (float& label : labels) {
    label = static_cast<float>(run->random()->NextBelow(classes));
  }
  return labels;
}

std::vector<float> Correct(LossKind kind, int64_t rows, int64_t width,
                           const Values& x, const Values& labels) {
  std::vector<float> correct(rows, 0.0f);
  for (int64_t r = 0; r < rows; ++r) {
    const auto row = x.begin() + r * width;
    if (kind == LossKind::kSoftmaxCrossEntropy) {
      correct[r] = std::max_element(row, row + width) - row ==
                   static_cast<int64_t>(labels[r]);
    } else if (kind == LossKind::kSigmoidCrossEntropy) {
      correct[r] = (row[0] > 0.0) == (labels[r] > 0.5);
    }
  }
  return correct;
}

// The gradients of softmax and sigmoid are differences of numbers up to 1 /
// rows, which cancel; those of the squared error do not.
Values LossTerms(LossKind kind, int64_t rows) {
  if (kind == LossKind::kMeanSquaredError) {
    return {};
  }
  return Values(rows, 1.0 / static_cast<double>(rows));
}

void LossOf(LossKind kind, int64_t rows, int64_t width, CheckRun* run) {
  run->Begin(absl::StrCat(rows, "x", width));
  // The loss of a row that is nearly sure is small and loses digits by nature.
  // Among many rows this does not weigh.
  float range = 5.0f;
  if (rows < 64) {
    range = 1.0f;
  }
  const CheckRun::Input x = run->Random(rows * width, -range, range);
  const CheckRun::Input labels =
      run->Exactly(DrawLabels(kind, rows, width, run));
  const Values expected =
      reference::LossRows(kind, rows, width, x.values, labels.values);
  for (const bool with_dx : {true, false}) {
    float* dx = nullptr;
    std::string suffix = " without dx";
    if (with_dx) {
      dx = run->Output(rows * width);
      suffix = "";
    }
    float* row_loss = run->Output(rows);
    float* correct = run->Output(rows);
    run->Run(op::Loss{kind, rows, width, x.device, labels.device, row_loss,
                      correct, dx});
    run->Near(("row_loss" + suffix).c_str(), row_loss, expected);
    run->Equal(("row_correct" + suffix).c_str(), correct,
               Correct(kind, rows, width, x.values, labels.values));
    if (with_dx) {
      run->NearSum(
          "dx", dx,
          reference::LossBackward(kind, rows, width, x.values, labels.values),
          LossTerms(kind, rows));
    }
  }
}

constexpr std::array<int64_t, 2> kLossShapes[] = {
    {1, 1},    {1, 2},    {5, 1},     {7, 3},
    {64, 101}, {3, 1500}, {4100, 10}, {129, 33}};
constexpr std::array<int64_t, 2> kLargeLossShapes[] = {
    {4096, 1000}, {8, 50257}, {70001, 2}};

void LossesOf(LossKind kind, CheckRun* run) {
  for (const auto& [rows, classes] :
       run->Cases(kLossShapes, kLargeLossShapes)) {
    int64_t width = classes;
    if (kind == LossKind::kSigmoidCrossEntropy) {
      width = 1;  // the contract has no other
    }
    LossOf(kind, rows, width, run);
  }
}

void ExpectFinite(const float* device, int64_t count, CheckRun* run) {
  bool finite = true;
  for (const float v : run->Read(device, count)) {
    finite = finite && std::isfinite(v);
  }
  run->Expect("dx is finite", finite);
}

// exp(1e4) overflows, so a loss that is not rewritten gives NaN here. The
// results are exact: what is added to 0 or 1e4 is below their last digit.
void LargeLogits(CheckRun* run) {
  run->Begin("softmax 2x3");
  const CheckRun::Input x = run->Exactly({1e4f, -1e4f, 0, 2, 2, 1});
  float* loss = run->Output(2);
  float* correct = run->Output(2);
  float* dx = run->Output(6);
  run->Run(op::Loss{LossKind::kSoftmaxCrossEntropy, 2, 3, x.device,
                    run->Exactly({0, 1}).device, loss, correct, dx});
  run->Equal("row_loss[0]", loss, {0});
  run->Equal("row_correct: the first of equals", correct, {1, 0});
  ExpectFinite(dx, 6, run);
  run->Begin("sigmoid 4");
  const CheckRun::Input logits = run->Exactly({1e4f, -1e4f, 3, -3});
  loss = run->Output(4);
  correct = run->Output(4);
  dx = run->Output(4);
  run->Run(op::Loss{LossKind::kSigmoidCrossEntropy, 4, 1, logits.device,
                    run->Exactly({0, 0, 1, 1}).device, loss, correct, dx});
  run->Equal("row_loss[0, 1]", loss, {1e4f, 0});
  run->Equal("row_correct", correct, {0, 1, 1, 0});
  ExpectFinite(dx, 4, run);
}

}  // namespace

std::vector<OperationCheck> RowChecks() {
  return {
      {"layer norm", &LayerNorm},
      {"batch norm", &BatchNorm},
      {"batch norm inference", &BatchNormInference},
      {"softmax cross-entropy",
       [](CheckRun* run) { LossesOf(LossKind::kSoftmaxCrossEntropy, run); }},
      {"sigmoid cross-entropy",
       [](CheckRun* run) { LossesOf(LossKind::kSigmoidCrossEntropy, run); }},
      {"mean squared error",
       [](CheckRun* run) { LossesOf(LossKind::kMeanSquaredError, run); }},
      {"losses: large logits, first of equals", &LargeLogits}};
}

}  // namespace weir
