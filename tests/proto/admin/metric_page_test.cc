#include "proto/admin/metric_page.h"

#include <string>

#include "common/metrics/histogram.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(MetricPageTest, WritesWhatPrometheusReads) {
  CountHistogram staleness;
  staleness.Record(0);
  staleness.Record(3);
  staleness.Record(100'000);
  HistogramSnapshot snapshot = staleness.Snapshot();
  // Only the first bounds, to be readable here.
  snapshot.counts.erase(snapshot.counts.begin() + 3, snapshot.counts.end() - 2);
  snapshot.bounds.erase(snapshot.bounds.begin() + 3, snapshot.bounds.end() - 1);
  snapshot.count = 2;
  snapshot.sum = 100'000;

  MetricPage page;
  page.AddCounter("weir_ps_updates_total", "Updates by result.",
                  {{"result", "accepted"}}, 12);
  page.AddGauge("weir_job_loss", "The newest loss.", {}, 0.1);
  page.AddCounter("weir_ps_updates_total", "Updates by result.",
                  {{"result", "duplicate"}}, 0);
  page.AddHistogram("weir_ps_staleness_steps", "How old updates were.",
                    {{"shard", "0"}}, snapshot);
  EXPECT_EQ(page.Text(),
            R"(# HELP weir_ps_updates_total Updates by result.
# TYPE weir_ps_updates_total counter
weir_ps_updates_total{result="accepted"} 12
weir_ps_updates_total{result="duplicate"} 0
# HELP weir_job_loss The newest loss.
# TYPE weir_job_loss gauge
weir_job_loss 0.1
# HELP weir_ps_staleness_steps How old updates were.
# TYPE weir_ps_staleness_steps histogram
weir_ps_staleness_steps_count{shard="0"} 2
weir_ps_staleness_steps_sum{shard="0"} 100000
weir_ps_staleness_steps_bucket{shard="0",le="0"} 1
weir_ps_staleness_steps_bucket{shard="0",le="1"} 1
weir_ps_staleness_steps_bucket{shard="0",le="2"} 1
weir_ps_staleness_steps_bucket{shard="0",le="65536"} 1
weir_ps_staleness_steps_bucket{shard="0",le="+Inf"} 2
)");
}

TEST(MetricPageTest, WritesBoundsOfTimesInSeconds) {
  TimeHistogram times;
  times.Record(3'000);
  MetricPage page;
  page.AddHistogram("weir_ps_apply_seconds", "Time.", {}, times.Snapshot());
  const std::string text = page.Text();
  for (const char* line : {"weir_ps_apply_seconds_bucket{le=\"1e-06\"} 0\n",
                           "weir_ps_apply_seconds_bucket{le=\"4e-06\"} 1\n",
                           "weir_ps_apply_seconds_bucket{le=\"67.108864\"} 1\n",
                           "weir_ps_apply_seconds_bucket{le=\"+Inf\"} 1\n",
                           "weir_ps_apply_seconds_sum 3e-06\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

// A label may say what a peer called itself. Bytes that are no UTF-8 would make
// Prometheus drop the whole page.
TEST(MetricPageTest, MakesLabelsOfPeersPrintable) {
  MetricPage page;
  page.AddGauge("weir_task_info", "Who.", {{"host", "a\"b\\c\n\xff"}}, 1);
  EXPECT_NE(page.Text().find(R"(host="a\"b\\c\\n\\xff")"), std::string::npos)
      << page.Text();
}

TEST(MetricPageDeathTest, RefusesNamesThatBreakTheRules) {
  MetricPage page;
  EXPECT_DEATH(page.AddGauge("loss", "Help.", {}, 1), "IsMetricName");
  EXPECT_DEATH(page.AddGauge("weir_Loss", "Help.", {}, 1), "IsMetricName");
  EXPECT_DEATH(page.AddCounter("weir_steps", "Help.", {}, 1), "IsMetricName");
  EXPECT_DEATH(page.AddGauge("weir_steps_total", "Help.", {}, 1),
               "IsMetricName");
  EXPECT_DEATH(page.AddGauge("weir_loss", "", {}, 1), "IsHelp");
  EXPECT_DEATH(page.AddGauge("weir_loss", "Help.", {{"job", "a"}}, 1),
               "IsLabelName");
}

}  // namespace
}  // namespace weir
