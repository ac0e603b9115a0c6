#include "worker/train/histograms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/limits.h"

namespace weir {
namespace {

constexpr int kBuckets = kHistogramBucketsMax;

// Where bucket `k` begins, and the one before it ends.
double EdgeOf(double min, double max, int k) {
  return k == kBuckets ? max : min + (max - min) * k / kBuckets;
}

}  // namespace

Histogram HistogramOf(std::span<const float> numbers) {
  float min = std::numeric_limits<float>::infinity();
  float max = -min;
  uint64_t finite = 0;
  for (const float x : numbers) {
    if (std::isfinite(x)) {
      min = std::min(min, x);
      max = std::max(max, x);
      ++finite;
    }
  }
  // I1: numbers and counts alone, in whatever order they are read.
  Histogram histogram;
  histogram.set_not_finite(numbers.size() - finite);
  if (finite == 0) {
    return histogram;
  }
  histogram.set_min(min);
  histogram.set_max(max);
  if (min == max) {
    histogram.add_count(finite);
    return histogram;
  }
  uint64_t counts[kBuckets] = {};
  const double scale = kBuckets / (static_cast<double>(max) - min);
  for (const float x : numbers) {
    if (!std::isfinite(x)) {
      continue;
    }
    int k = std::min(static_cast<int>((x - static_cast<double>(min)) * scale),
                     kBuckets - 1);
    // The product may round over an edge. The edges decide: they are what a
    // reader sees.
    if (x < EdgeOf(min, max, k)) {
      --k;
    } else if (k + 1 < kBuckets && x >= EdgeOf(min, max, k + 1)) {
      ++k;
    }
    ++counts[k];
  }
  histogram.mutable_count()->Add(counts, counts + kBuckets);
  return histogram;
}

void Histograms::Begin(const WorkUnit& work, bool sync) {
  if (options_.every_steps == 0) {
    return;
  }
  const uint64_t step = (sync ? work.version : work.contribution) + 1;
  due_ =
      !work.beyond_end && work.index == 0 && step % options_.every_steps == 0;
  made_.Clear();
  made_.set_contribution(work.contribution);
}

void Histograms::AddValues(int variable) {
  if (!due_) {
    return;  // I2
  }
  if (VariableHistograms* const of = Of(variable); of != nullptr) {
    *of->mutable_values() = HistogramOf(Part(options_.values, variable));
  }
}

void Histograms::AddGradients(int variable) {
  if (!due_ || std::count(options_.left_out.begin(), options_.left_out.end(),
                          variable) > 0) {
    return;
  }
  if (VariableHistograms* const of = Of(variable); of != nullptr) {
    *of->mutable_gradients() = HistogramOf(Part(options_.gradients, variable));
  }
}

std::optional<ContributionHistograms> Histograms::Take() {
  if (!std::exchange(due_, false)) {
    return std::nullopt;
  }
  return std::move(made_);
}

// Null for one that the message has no room for, and for a buffer: no training
// step reads one, and what is pushed for it is no gradient.
VariableHistograms* Histograms::Of(int variable) {
  if (options_.layout->variables()[variable].kind == VariableKind::kBuffer) {
    return nullptr;
  }
  for (VariableHistograms& made : *made_.mutable_variable()) {
    if (made.variable() == static_cast<uint32_t>(variable)) {
      return &made;
    }
  }
  if (made_.variable_size() >= kHistogramVariablesMax) {
    return nullptr;
  }
  VariableHistograms* const added = made_.add_variable();
  added->set_variable(static_cast<uint32_t>(variable));
  return added;
}

std::span<const float> Histograms::Part(const float* flat, int variable) const {
  return {
      flat + options_.layout->flat_begin(variable),
      static_cast<size_t>(options_.layout->variables()[variable].elements())};
}

}  // namespace weir
