// Computes the loss of an evaluation and the metrics of its task.
//
// Metrics, by the kind of loss
//   softmax_cross_entropy  loss, accuracy (the largest logit's class)
//   sigmoid_cross_entropy  loss, accuracy (threshold 0.5), auc, log_loss,
//                          calibration, group_auc
//   mean_squared_error     loss, rmse
//
// Terms
//   auc          see auc.h; exact up to `exact_rows_max` rows, by bins beyond.
//   log_loss     the mean of -log of the probability that the label was given,
//                in nats. It is computed from the logits in double, so it is
//                finite where the loss in float32 is not.
//   calibration  the mean predicted probability divided by the mean label; 1 is
//                best. Left out where every label is 0.
//   group_auc    see auc.h; over the rows whose group AddGroup tells. Left out
//                where there are no such rows, where no group has a pair, and
//                beyond `exact_rows_max` rows.
//
// These four are left out where an output is NaN.
// Threads: compatible.
// Cost: 8 bytes for each row, 16 more with groups, and 1 MiB.
#ifndef WORKER_EVALUATE_METRICS_H_
#define WORKER_EVALUATE_METRICS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/job_spec.pb.h"
#include "worker/evaluate/auc.h"

namespace weir {

class Metrics {
 public:
  // 128 MiB of scores.
  static constexpr int64_t kExactRowsMax = int64_t{1} << 24;

  explicit Metrics(Loss::KindCase kind, int64_t exact_rows_max = kExactRowsMax)
      : kind_(kind), exact_rows_max_(exact_rows_max) {}

  // outputs: [rows, width], logits or predictions, row-major, borrowed.
  // labels: [rows], class index or 0/1; mean squared error: [rows, width].
  // loss: the mean over these rows.
  void Add(const float* outputs, const float* labels, int64_t rows,
           int64_t width, double loss);

  // Tells the group of a row. REQUIRES: Add was called with the row before.
  void AddGroup(uint64_t group, float logit, bool positive);

  int64_t rows() const { return rows_; }
  // Returns the metrics by name; empty before the first row.
  std::map<std::string, double> Result() const;

 private:
  void AddBinary(float logit, bool positive);
  void AddBinaryResults(std::map<std::string, double>* result) const;

  const Loss::KindCase kind_;
  const int64_t exact_rows_max_;
  int64_t rows_ = 0;
  int64_t correct_ = 0;
  double loss_sum_ = 0;

  // For sigmoid_cross_entropy.
  bool has_nan_ = false;
  double log_loss_sum_ = 0;
  double probability_sum_ = 0;
  double label_sum_ = 0;
  std::vector<Score> scores_;  // logits; empty above exact_rows_max_ rows
  BinnedAuc binned_auc_;
  std::vector<GroupedScore> grouped_;  // the same, with groups
};

}  // namespace weir

#endif  // WORKER_EVALUATE_METRICS_H_
