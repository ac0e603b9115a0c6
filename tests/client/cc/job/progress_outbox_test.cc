#include "client/cc/job/progress_outbox.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/base/limits.h"

namespace weir {
namespace {

// Contribution `sequence` is done, and reported.
void Add(uint64_t sequence, ProgressOutbox* outbox) {
  ContributionReport report;
  report.set_contribution(sequence);
  outbox->AddReport(report);
  outbox->AddContribution(sequence + 1, {});
}

std::vector<uint64_t> SequencesOf(const Progress& progress) {
  std::vector<uint64_t> sequences;
  for (const ContributionReport& report : progress.report()) {
    sequences.push_back(report.contribution());
  }
  return sequences;
}

TEST(ProgressOutboxTest, AMessageHasAllThatIsPending) {
  ProgressOutbox outbox;
  outbox.Start(5, /*residuals_lost=*/true);
  Add(5, &outbox);
  Add(6, &outbox);
  EXPECT_TRUE(outbox.more());
  const Progress progress = outbox.Take();
  EXPECT_EQ(SequencesOf(progress), (std::vector<uint64_t>{5, 6}));
  EXPECT_EQ(progress.next_sequence(), 7u);
  EXPECT_TRUE(progress.residuals_lost());
  EXPECT_EQ(progress.message_number(), 1u);
  EXPECT_FALSE(outbox.more());
  EXPECT_FALSE(outbox.Take().residuals_lost());  // said once
}

TEST(ProgressOutboxTest, CountsAreSummedAndStatesAreTheNewest) {
  ProgressOutbox outbox;
  ContributionResult result;
  result.staleness_sum = 6;
  result.staleness_count = 2;
  result.staleness_max = 5;
  result.bytes_sent = 100;
  result.bytes_received = 10;
  outbox.AddContribution(1, result);
  result.staleness_max = 3;
  outbox.AddContribution(2, result);
  Phases phases;
  phases.set_contributions(1);
  phases.set_step_ns(7);
  phases.set_device_bytes_used(50);
  outbox.AddPhases(phases);
  phases.set_device_bytes_used(40);
  outbox.AddPhases(phases);
  const Progress progress = outbox.Take();
  EXPECT_EQ(progress.staleness_sum(), 12u);
  EXPECT_EQ(progress.staleness_count(), 4u);
  EXPECT_EQ(progress.staleness_max(), 5u);
  EXPECT_EQ(progress.bytes_pushed(), 200u);
  EXPECT_EQ(progress.bytes_pulled(), 20u);
  EXPECT_EQ(progress.phases().contributions(), 2u);
  EXPECT_EQ(progress.phases().step_ns(), 14u);
  EXPECT_EQ(progress.phases().device_bytes_used(), 40u);
  EXPECT_EQ(outbox.Take().staleness_count(), 0u);
}

TEST(ProgressOutboxTest, AMessageThatTellsNothingHasNoNumber) {
  ProgressOutbox outbox;
  outbox.Start(3, false);
  const Progress progress = outbox.Take();
  EXPECT_EQ(progress.next_sequence(), 3u);
  EXPECT_EQ(progress.message_number(), 0u);
  outbox.OnStreamOpen();
  EXPECT_FALSE(outbox.more());
}

// I1, I2.
TEST(ProgressOutboxTest, WhatWasNotHeardGoesAgainUnchanged) {
  ProgressOutbox outbox;
  std::vector<Progress> sent;
  for (uint64_t sequence = 0; sequence < 3; ++sequence) {
    Add(sequence, &outbox);
    sent.push_back(outbox.Take());
  }
  outbox.OnHeard(1);
  Add(3, &outbox);
  outbox.OnStreamOpen();
  for (int again = 1; again < 3; ++again) {
    EXPECT_TRUE(outbox.more());
    EXPECT_EQ(outbox.Take().SerializeAsString(),
              sent[again].SerializeAsString());
  }
  EXPECT_TRUE(outbox.more());
  EXPECT_EQ(SequencesOf(outbox.Take()), (std::vector<uint64_t>{3}));
  outbox.OnHeard(4);
  outbox.OnStreamOpen();
  EXPECT_FALSE(outbox.more());
}

TEST(ProgressOutboxTest, WhatIsHeardWhileItGoesAgainIsNotSentThrice) {
  ProgressOutbox outbox;
  for (uint64_t sequence = 0; sequence < 3; ++sequence) {
    Add(sequence, &outbox);
    outbox.Take();
  }
  outbox.OnStreamOpen();
  EXPECT_EQ(outbox.Take().message_number(), 1u);
  outbox.OnHeard(2);
  EXPECT_EQ(outbox.Take().message_number(), 3u);
  EXPECT_FALSE(outbox.more());
}

// I3, I4.
TEST(ProgressOutboxTest, ALongListGoesInSeveralMessages) {
  ProgressOutbox outbox;
  const uint64_t count = ProgressOutbox::kReportsPerMessageMax + 5;
  for (uint64_t sequence = 0; sequence < count; ++sequence) {
    Add(sequence, &outbox);
  }
  const Progress first = outbox.Take();
  EXPECT_EQ(first.report_size(), ProgressOutbox::kReportsPerMessageMax);
  EXPECT_EQ(first.next_sequence(), count - 5);
  EXPECT_TRUE(outbox.more());
  const Progress second = outbox.Take();
  EXPECT_EQ(SequencesOf(second),
            (std::vector<uint64_t>{count - 5, count - 4, count - 3, count - 2,
                                   count - 1}));
  EXPECT_EQ(second.next_sequence(), count);
}

// I3, I4.
TEST(ProgressOutboxTest, ReportsWaitWhileTooMuchIsUnheard) {
  ProgressOutbox outbox;
  uint64_t sequence = 0;
  for (; sequence < ProgressOutbox::kUnheardMax; ++sequence) {
    Add(sequence, &outbox);
    outbox.Take();
  }
  Add(sequence, &outbox);
  Add(sequence + 1, &outbox);
  EXPECT_FALSE(outbox.more());
  const Progress empty = outbox.Take();
  EXPECT_EQ(empty.report_size(), 0);
  EXPECT_EQ(empty.next_sequence(), sequence);
  EXPECT_EQ(empty.message_number(), 0u);
  outbox.OnHeard(1);
  EXPECT_TRUE(outbox.more());
  EXPECT_EQ(SequencesOf(outbox.Take()),
            (std::vector<uint64_t>{sequence, sequence + 1}));
}

// I4.
TEST(ProgressOutboxTest, AMessageHasHistogramsOfSoManyVariables) {
  ProgressOutbox outbox;
  ContributionHistograms histograms;
  histograms.set_contribution(4);
  for (int v = 0; v < kHistogramVariablesMax / 2; ++v) {
    histograms.add_variable();
  }
  outbox.AddHistograms(histograms);
  histograms.set_contribution(5);
  outbox.AddHistograms(histograms);
  histograms.set_contribution(6);
  outbox.AddHistograms(histograms);
  const Progress progress = outbox.Take();
  ASSERT_EQ(progress.histograms_size(), 2);
  EXPECT_EQ(progress.histograms(1).contribution(), 5u);
  EXPECT_EQ(progress.message_number(), 1u);  // I1: it goes until it is heard
  EXPECT_EQ(outbox.Take().histograms_size(), 0);
}

TEST(ProgressOutboxTest, AMillionReportsOfMetricsAreOneMessage) {
  ProgressOutbox outbox;
  MetricSums sums;
  sums.set_reports(1);
  sums.set_examples(2);
  sums.add_metric()->set_name("loss");
  sums.mutable_metric(0)->set_weighted_sum(1.0);
  sums.mutable_metric(0)->set_weight(2.0);
  for (int i = 0; i < 1'000'000; ++i) {
    outbox.AddMetrics(sums);
  }
  const Progress progress = outbox.Take();
  EXPECT_EQ(progress.metrics().reports(), 1'000'000u);
  EXPECT_EQ(progress.metrics().examples(), 2'000'000u);
  ASSERT_EQ(progress.metrics().metric_size(), 1);
  EXPECT_EQ(progress.metrics().metric(0).weighted_sum(), 1e6);
  EXPECT_LT(progress.ByteSizeLong(), 100u);
  EXPECT_EQ(progress.message_number(), 1u);
  EXPECT_FALSE(outbox.Take().has_metrics());
}

}  // namespace
}  // namespace weir
