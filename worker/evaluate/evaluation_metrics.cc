#include "worker/evaluate/evaluation_metrics.h"

#include <algorithm>

#include "proto/checkpoint/checkpoint_names.h"

namespace weir {

void EvaluationMetrics::Begin(const std::string& dir) {
  const auto id = ParseCheckpointName(dir.substr(dir.rfind('/') + 1));
  MutexLock lock(&mutex_);
  if (id.has_value()) {
    step_found_ = std::max(step_found_, id->step);
  }
}

void EvaluationMetrics::Set(const EvaluationResult& result) {
  MutexLock lock(&mutex_);
  step_found_ = std::max(step_found_, result.step);
  newest_ = result;
}

void EvaluationMetrics::AddMetrics(MetricPage* page) const {
  MutexLock lock(&mutex_);
  const uint64_t step = newest_.has_value() ? newest_->step : 0;
  page->AddGauge("weir_eval_step", "The step of the newest result.", {},
                 static_cast<double>(step));
  page->AddGauge(
      "weir_eval_lag_steps",
      "Steps from the newest result to the newest checkpoint that "
      "was found.",
      {}, static_cast<double>(step_found_ - std::min(step_found_, step)));
  if (!newest_.has_value()) {
    return;
  }
  for (const auto& [name, value] : newest_->metrics) {
    page->AddGauge("weir_eval_metric", "A metric of the newest result.",
                   {{"metric", name}}, value);
  }
}

}  // namespace weir
