#include "worker/evaluate/metrics.h"

#include <algorithm>
#include <cmath>

namespace weir {

void Metrics::Add(const float* outputs, const float* labels, int64_t rows,
                  int64_t width, double loss) {
  // First, as AddBinary asks whether the rows are too many for the exact AUC.
  rows_ += rows;
  // By rows: the last batch is smaller, and a mean of means would overrate it.
  loss_sum_ += loss * static_cast<double>(rows);
  for (int64_t row = 0; row < rows; ++row) {
    const float* output = outputs + row * width;
    if (kind_ == Loss::kSoftmaxCrossEntropy) {
      const int64_t best = std::max_element(output, output + width) - output;
      if (best == static_cast<int64_t>(labels[row])) {
        ++correct_;
      }
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
  if ((logit > 0.0f) == positive) {
    ++correct_;
  }
  // NaN has no place in an order and no probability; what was summed so far is
  // not shown any more.
  has_nan_ = has_nan_ || std::isnan(logit);
  if (has_nan_) {
    return;
  }
  const auto z = static_cast<double>(logit);
  const double small = std::exp(-std::abs(z));  // never overflows
  // sigmoid(z) is 1 / (1 + e^-z), which for z < 0 is e^z / (1 + e^z).
  const double probability = (z >= 0 ? 1.0 : small) / (1.0 + small);
  // -log sigmoid(m) = max(-m, 0) + log(1 + e^-|m|), with the margin m = z for a
  // positive and -z for a negative.
  log_loss_sum_ += std::max(positive ? -z : z, 0.0) + std::log1p(small);
  probability_sum_ += probability;
  if (positive) {
    label_sum_ += 1.0;
  }
  binned_auc_.Add(probability, positive);
  if (rows_ <= exact_rows_max_) {
    scores_.emplace_back(logit, positive);
  } else {
    decltype(scores_)().swap(scores_);  // frees the memory; clear() would not
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
  if (rows_ <= exact_rows_max_) {
    (*result)["auc"] = Auc(scores_);
  } else {
    (*result)["auc"] = binned_auc_.Value();
  }
  (*result)["log_loss"] = log_loss_sum_ / static_cast<double>(rows_);
  if (label_sum_ > 0) {
    (*result)["calibration"] = probability_sum_ / label_sum_;
  }
  if (const std::optional<double> auc = GroupAuc(grouped_)) {
    (*result)["group_auc"] = *auc;
  }
}

}  // namespace weir
