// The metrics of an evaluator: its newest result.
//
// Threads: safe; AddMetrics is called on the admin port's thread.
#ifndef WORKER_EVALUATE_EVALUATION_METRICS_H_
#define WORKER_EVALUATE_EVALUATION_METRICS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/mutex.h"
#include "proto/admin/metric_page.h"
#include "worker/evaluate/evaluation.h"

namespace weir {

class EvaluationMetrics {
 public:
  // The checkpoint in `dir` was found, and its evaluation begins.
  void Begin(const std::string& dir);
  void Set(const EvaluationResult& result);
  void AddMetrics(MetricPage* page) const;

 private:
  mutable Mutex mutex_;
  uint64_t step_found_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<EvaluationResult> newest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // WORKER_EVALUATE_EVALUATION_METRICS_H_
