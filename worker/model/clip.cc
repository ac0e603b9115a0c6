#include "worker/model/clip.h"

#include <cmath>

#include "common/status.h"

namespace weir {
namespace {

constexpr int kLanes = 8;

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

// Calls f(first element, count) for every trained variable.
template <typename F>
void ForEachTrained(const Layout& layout, F f) {
  for (size_t v = 0; v < layout.variables().size(); ++v) {
    const VariableSpec& variable = layout.variables()[v];
    if (variable.kind == VariableKind::kTrained) {
      f(layout.flat_begin(static_cast<int>(v)), variable.elements());
    }
  }
}

absl::Status CheckBound(const char* field, double bound) {
  if (!std::isfinite(bound) || bound <= 0.0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "train.clip.", field, " is ", bound, "; it must be finite and > 0"));
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

double GradientNorm(const Layout& layout, const float* gradients) {
  double sum = 0.0;
  ForEachTrained(layout, [&](int64_t begin, int64_t count) {
    sum += SquareSum(gradients + begin, count);
  });
  return std::sqrt(sum);
}

void ClipGradients(const Clip& clip, const Layout& layout, float* gradients) {
  if (clip.kind_case() == Clip::kValue) {
    const auto bound = static_cast<float>(clip.value());
    ForEachTrained(layout, [&](int64_t begin, int64_t count) {
      for (float* g = gradients + begin; g < gradients + begin + count; ++g) {
        // Comparisons that NaN fails, so that it stays.
        *g = *g > bound ? bound : *g < -bound ? -bound : *g;
      }
    });
  } else if (clip.kind_case() == Clip::kNorm) {
    const double norm = GradientNorm(layout, gradients);
    if (!std::isfinite(norm) || norm <= clip.norm()) {
      return;
    }
    const auto factor = static_cast<float>(clip.norm() / norm);
    ForEachTrained(layout, [&](int64_t begin, int64_t count) {
      for (int64_t i = begin; i < begin + count; ++i) {
        gradients[i] *= factor;
      }
    });
  }
}

}  // namespace weir
