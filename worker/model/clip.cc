#include "worker/model/clip.h"

#include <algorithm>
#include <cmath>

#include "common/base/status.h"

namespace weir {
namespace {

constexpr int kLanes = 8;

// I1: element i goes to lane i mod kLanes whatever the compiler makes of it,
// and lanes are added in order. Several lanes let it vectorise without
// reordering.
double SquareSum(const float* x, int64_t count) {
  double lanes[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) {
    lanes[i % kLanes] += static_cast<double>(x[i]) * x[i];
  }
  double sum = 0.0;
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
}

// Calls f(values, count) for the gradient of every trained variable that is not
// frozen, and each table's. Float: float, or const float.
template <typename Float, typename F>
void ForEachTrained(const Layout& layout, Float* gradients,
                    RowGradientLists rows, std::span<const int> frozen, F f) {
  const int variables = static_cast<int>(layout.variables().size());
  for (int v = 0; v < variables; ++v) {
    const VariableSpec& variable = layout.variables()[v];
    if (variable.kind == VariableKind::kTrained &&
        std::find(frozen.begin(), frozen.end(), v) == frozen.end()) {
      f(gradients + layout.flat_begin(v), variable.elements());
    }
  }
  for (const std::span<float> table : rows) {
    f(table.data(), static_cast<int64_t>(table.size()));
  }
}

// Replaces each trained element g by map(g).
template <typename F>
void Map(const Layout& layout, float* gradients, RowGradientLists rows,
         std::span<const int> frozen, F map) {
  ForEachTrained(layout, gradients, rows, frozen, [&](float* x, int64_t count) {
    std::transform(x, x + count, x, map);
  });
}

absl::Status CheckBound(const char* field, double bound) {
  if (!std::isfinite(bound) || bound <= 0.0) {
    return Invalid("train.clip.", field, " is ", bound,
                   "; it must be finite and > 0");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateClip(const Clip& clip) {
  switch (clip.kind_case()) {
    case Clip::kValue:
      return CheckBound("value", clip.value());
    case Clip::kNorm:
      return CheckBound("norm", clip.norm());
    case Clip::KIND_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

double GradientNorm(const Layout& layout, const float* gradients,
                    RowGradientLists rows, std::span<const int> frozen) {
  double sum = 0.0;
  ForEachTrained(
      layout, gradients, rows, frozen,
      [&](const float* x, int64_t count) { sum += SquareSum(x, count); });
  return std::sqrt(sum);
}

void ClipGradients(const Clip& clip, const Layout& layout, float* gradients,
                   RowGradientLists rows, std::span<const int> frozen) {
  if (clip.kind_case() == Clip::kValue) {
    const auto bound = static_cast<float>(clip.value());
    // NaN fails both comparisons and stays, so that the ps finds it.
    Map(layout, gradients, rows, frozen, [bound](float g) {
      if (g > bound) {
        return bound;
      }
      if (g < -bound) {
        return -bound;
      }
      return g;
    });
  } else if (clip.kind_case() == Clip::kNorm) {
    const double norm = GradientNorm(layout, gradients, rows, frozen);
    // I2: with Inf the factor would be 0 and turn Inf into NaN, and all other
    // gradients into 0.
    if (!std::isfinite(norm) || norm <= clip.norm()) {
      return;
    }
    const auto factor = static_cast<float>(clip.norm() / norm);
    Map(layout, gradients, rows, frozen,
        [factor](float g) { return g * factor; });
  }
}

}  // namespace weir
