// What an evaluation computes: loss, and accuracy, AUC or RMSE as the task
// asks.
//
//   softmax_cross_entropy  loss, accuracy
//   sigmoid_cross_entropy  loss, accuracy (threshold 0.5), auc
//   mean_squared_error     loss, rmse
//
// Threads: compatible. Cost: AUC keeps one score per row.
// Source: AUC as the Mann-Whitney statistic; Fawcett, "An introduction to ROC
//         analysis", 2006, section 7. Ties count one half.
#ifndef WORKER_METRICS_H_
#define WORKER_METRICS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "proto/job_spec.pb.h"

namespace weir {

class Metrics {
 public:
  explicit Metrics(Loss::KindCase kind) : kind_(kind) {}

  // outputs: [rows, width], logits or predictions, row-major, borrowed.
  // labels: [rows], class index or 0/1; mean squared error: [rows, width].
  // loss: the mean over these rows.
  void Add(const float* outputs, const float* labels, int64_t rows,
           int64_t width, double loss);

  int64_t rows() const { return rows_; }
  // By name. All zero rows: empty.
  std::map<std::string, double> Result() const;

 private:
  double Auc() const;

  const Loss::KindCase kind_;
  int64_t rows_ = 0;
  int64_t correct_ = 0;
  double loss_sum_ = 0;
  std::vector<std::pair<float, bool>> scores_;  // (logit, positive)
};

}  // namespace weir

#endif  // WORKER_METRICS_H_
