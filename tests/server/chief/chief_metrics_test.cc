#include "server/chief/chief_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ChiefMetricsTest, AReportBecomesMetrics) {
  JobReport report;
  report.set_phase("training");
  report.set_step(120);
  report.set_step_count(400);
  report.set_unix_seconds(1000);
  report.mutable_cause()->set_kind("slow_ps");
  for (uint32_t w = 0; w < 3; ++w) {
    WorkerReport* const worker = report.add_worker();
    worker->set_slot(w);
    worker->set_state(w == 2 ? "absent" : "working");
    worker->set_step_seconds(0.5);
    worker->set_alone_share(w == 1 ? 0.4 : 0.0);
    worker->set_heartbeat_age_seconds(0.25);
  }
  report.add_shard()->set_state("lost");
  report.mutable_checkpoint()->set_newest("ckpt-100");
  report.mutable_checkpoint()->set_bytes(5);
  report.mutable_checkpoint()->set_age_seconds(40);
  report.mutable_checkpoint()->set_under_way_seconds(7);
  MetricPage page;
  AddChiefMetrics(report, &page);
  const std::string text = page.Text();
  EXPECT_THAT(text, HasSubstr("weir_job_step 120\n"));
  EXPECT_THAT(text, HasSubstr("weir_job_phase{phase=\"training\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("weir_job_phase{phase=\"done\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("weir_job_cause{cause=\"slow_ps\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("weir_job_workers{state=\"working\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("weir_job_workers{state=\"absent\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("weir_heartbeat_age_seconds{slot=\"1\"} 0.25\n"));
  EXPECT_THAT(text, Not(HasSubstr("weir_heartbeat_age_seconds{slot=\"2\"}")));
  EXPECT_THAT(text, HasSubstr("weir_job_straggler_gap_seconds 0.2\n"));
  EXPECT_THAT(text, HasSubstr("weir_job_ps_lost 1\n"));
  EXPECT_THAT(text,
              HasSubstr("weir_checkpoint_last_success_timestamp_seconds 960"));
  EXPECT_THAT(text, HasSubstr("weir_checkpoint_under_way_seconds 7\n"));
}

// The time of a checkpoint that another chief committed is not known.
TEST(ChiefMetricsTest, WithoutACheckpointOfItsOwnThereIsNoTime) {
  JobReport report;
  report.set_unix_seconds(1000);
  MetricPage page;
  AddChiefMetrics(report, &page);
  EXPECT_THAT(page.Text(), Not(HasSubstr("last_success")));
}

}  // namespace
}  // namespace weir
