#include "worker/evaluate/evaluation_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Text(const EvaluationMetrics& metrics) {
  MetricPage page;
  metrics.AddMetrics(&page);
  return page.Text();
}

TEST(EvaluationMetricsTest, TellsTheNewestResultAndHowFarItIsBehind) {
  EvaluationMetrics metrics;
  EXPECT_THAT(Text(metrics), HasSubstr("weir_eval_lag_steps 0\n"));
  EXPECT_THAT(Text(metrics), Not(HasSubstr("weir_eval_metric")));
  metrics.Begin("/run/checkpoints/ckpt-500");
  EXPECT_THAT(Text(metrics), HasSubstr("weir_eval_lag_steps 500\n"));
  EvaluationResult result;
  result.step = 500;
  result.metrics = {{"accuracy", 0.75}, {"loss", 0.5}};
  metrics.Set(result);
  metrics.Begin("/run/checkpoints/ckpt-700-2");
  const std::string text = Text(metrics);
  EXPECT_THAT(text, HasSubstr("weir_eval_step 500\n"));
  EXPECT_THAT(text, HasSubstr("weir_eval_lag_steps 200\n"));
  EXPECT_THAT(text, HasSubstr("weir_eval_metric{metric=\"accuracy\"} 0.75\n"));
  EXPECT_THAT(text, HasSubstr("weir_eval_metric{metric=\"loss\"} 0.5\n"));
}

}  // namespace
}  // namespace weir
