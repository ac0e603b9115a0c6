#include "worker/train/job_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace weir {
namespace {

using ::testing::HasSubstr;

class CountingControl : public JobControl {
 public:
  bool EnterContribution() override { return ++entered < 3; }
  void LeaveContribution(uint64_t next_sequence, const ContributionReport&,
                         const ContributionResult&) override {
    next = next_sequence;
  }
  void AddPhases(const Phases& phases) override { step_ns += phases.step_ns(); }
  void AddHistograms(ContributionHistograms given) override {
    histograms = std::move(given);
  }
  void OutOfWork() override { out_of_work = true; }

  ContributionHistograms histograms;
  int entered = 0;
  uint64_t next = 0;
  uint64_t step_ns = 0;
  bool out_of_work = false;
};

std::string Text(const JobMeter& meter) {
  MetricPage page;
  meter.AddMetrics(&page);
  return page.Text();
}

TEST(JobMeterTest, HandsEverythingOnAndCountsIt) {
  CountingControl control;
  JobMeter meter;
  ClientCounters counters;
  counters.bytes_sent = 100;
  counters.reconnects = 1;
  counters.shard_wait_ns = {0, 2'000'000'000};
  meter.Begin(&control, [&] { return counters; });
  EXPECT_TRUE(meter.EnterContribution());
  EXPECT_TRUE(meter.EnterContribution());
  EXPECT_FALSE(meter.EnterContribution());
  Phases phases;
  phases.set_contributions(1);
  phases.set_step_ns(500'000'000);
  phases.set_data_wait_ns(250'000'000);
  meter.AddPhases(phases);
  ContributionHistograms histograms;
  histograms.set_contribution(6);
  meter.AddHistograms(histograms);
  ContributionReport report;
  report.set_rows(32);
  report.set_loss(0.5f);
  meter.LeaveContribution(7, report, {});
  meter.OutOfWork();
  EXPECT_EQ(control.next, 7u);
  EXPECT_EQ(control.step_ns, 500'000'000u);
  EXPECT_EQ(control.histograms.contribution(), 6u);
  EXPECT_TRUE(control.out_of_work);
  const std::string text = Text(meter);
  EXPECT_THAT(text, HasSubstr("weir_worker_items_total 1\n"));
  EXPECT_THAT(text, HasSubstr("weir_worker_examples_total 32\n"));
  EXPECT_THAT(text, HasSubstr("weir_worker_loss 0.5\n"));
  EXPECT_THAT(
      text,
      HasSubstr("weir_worker_phase_seconds_total{phase=\"data\"} 0.25\n"));
  EXPECT_THAT(text, HasSubstr("weir_worker_step_seconds_count 1\n"));
  EXPECT_THAT(text,
              HasSubstr("weir_worker_wait_seconds_total{shard=\"1\"} 2\n"));
}

// A worker may have several grants, each with a session of its own.
TEST(JobMeterTest, CountersOfGrantsAddUp) {
  CountingControl control;
  JobMeter meter;
  for (uint64_t grant = 1; grant <= 3; ++grant) {
    ClientCounters counters;
    counters.bytes_sent = 100 * grant;
    counters.shard_wait_ns.resize(grant, 1'000'000'000);
    meter.Begin(&control, [&] { return counters; });
    meter.End();
    counters.bytes_sent = 1'000'000;  // nobody asks for these any more
  }
  const std::string text = Text(meter);
  EXPECT_THAT(text, HasSubstr("weir_worker_pushed_bytes_total 600\n"));
  EXPECT_THAT(text,
              HasSubstr("weir_worker_wait_seconds_total{shard=\"0\"} 3\n"));
  EXPECT_THAT(text,
              HasSubstr("weir_worker_wait_seconds_total{shard=\"2\"} 1\n"));
}

}  // namespace
}  // namespace weir
