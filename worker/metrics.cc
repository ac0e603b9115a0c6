#include "worker/metrics.h"

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
      const bool positive = labels[row] > 0.5f;
      correct_ += (output[0] > 0.0f) == positive ? 1 : 0;
      scores_.emplace_back(output[0], positive);
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
    result["auc"] = Auc();
  }
  return result;
}

double Metrics::Auc() const {
  std::vector<std::pair<float, bool>> scores = scores_;
  std::sort(scores.begin(), scores.end());
  double rank_sum = 0;  // of the positives; ranks count from 1
  double positives = 0;
  for (size_t begin = 0; begin < scores.size();) {
    size_t end = begin;
    double tied_positives = 0;
    while (end < scores.size() && scores[end].first == scores[begin].first) {
      tied_positives += scores[end].second ? 1 : 0;
      ++end;
    }
    const double mean_rank = static_cast<double>(begin + 1 + end) / 2;
    rank_sum += tied_positives * mean_rank;
    positives += tied_positives;
    begin = end;
  }
  const double negatives = static_cast<double>(scores.size()) - positives;
  if (positives == 0 || negatives == 0) {
    return 0.5;  // no pair to order
  }
  return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives);
}

}  // namespace weir
