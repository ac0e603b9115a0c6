#include "worker/evaluate/metrics.h"

#include <algorithm>
#include <cmath>

namespace weir {

void Metrics::Add(const float* outputs, const float* labels, int64_t rows,
                  int64_t width, double loss) {
  rows_ += rows;
  loss_sum_ += loss * static_cast<double>(rows);
  for (int64_t row = 0; row < rows; ++row) {
    const float* output = outputs + row * width;
    if (kind_ == Loss::kSoftmaxCrossEntropy) {
      const int64_t best = std::max_element(output, output + width) - output;
      correct_ += best == static_cast<int64_t>(labels[row]) ? 1 : 0;
    } else if (kind_ == Loss::kSigmoidCrossEntropy) {
      AddBinary(output[0], labels[row] > 0.5f);
    }
  }
}

std::map<std::string, double> Metrics::Result() const {
  std::map<std::string, double> result;
  if (rows_ == 0) {
    return result;
  }
  const double rows = static_cast<double>(rows_);
  result["loss"] = loss_sum_ / rows;
  if (kind_ == Loss::kMeanSquaredError) {
    result["rmse"] = std::sqrt(loss_sum_ / rows);
  } else {
    result["accuracy"] = static_cast<double>(correct_) / rows;
  }
  if (kind_ == Loss::kSigmoidCrossEntropy) {
    AddBinaryResults(&result);
  }
  return result;
}

void Metrics::AddBinary(float logit, bool positive) {
  correct_ += (logit > 0.0f) == positive ? 1 : 0;
  has_nan_ = has_nan_ || std::isnan(logit);
  if (has_nan_) {
    return;
  }
  const auto z = static_cast<double>(logit);
  const double small = std::exp(-std::abs(z));  // never overflows
  const double probability = (z >= 0 ? 1.0 : small) / (1.0 + small);
  log_loss_sum_ += std::max(positive ? -z : z, 0.0) + std::log1p(small);
  probability_sum_ += probability;
  label_sum_ += positive ? 1.0 : 0.0;
  binned_auc_.Add(probability, positive);
  if (rows_ <= exact_rows_max_) {
    scores_.emplace_back(logit, positive);
  } else {
    scores_ = {};
  }
}

void Metrics::AddGroup(uint64_t group, float logit, bool positive) {
  if (rows_ <= exact_rows_max_) {
    grouped_.push_back({group, logit, positive});
  } else {
    grouped_ = {};
  }
}

void Metrics::AddBinaryResults(std::map<std::string, double>* result) const {
  if (has_nan_) {
    return;
  }
  (*result)["auc"] =
      rows_ <= exact_rows_max_ ? Auc(scores_) : binned_auc_.Value();
  (*result)["log_loss"] = log_loss_sum_ / static_cast<double>(rows_);
  if (label_sum_ > 0) {
    (*result)["calibration"] = probability_sum_ / label_sum_;
  }
  if (const std::optional<double> auc = GroupAuc(grouped_)) {
    (*result)["group_auc"] = *auc;
  }
}

}  // namespace weir
