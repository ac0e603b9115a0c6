#include "client/cc/job/progress_outbox.h"

#include <algorithm>
#include <utility>

#include "client/cc/job/metric_sums.h"
#include "common/base/limits.h"
#include "proto/wire/phase_sums.h"

namespace weir {
namespace {

// Whether a message that is lost would take something along. The others only
// say that the worker is alive, and need no acknowledgement.
bool Tells(const Progress& progress) {
  return progress.report_size() > 0 || progress.has_phases() ||
         progress.staleness_count() > 0 || progress.bytes_pushed() > 0 ||
         progress.bytes_pulled() > 0 || progress.residuals_lost() ||
         progress.histograms_size() > 0 || progress.has_metrics();
}

}  // namespace

void ProgressOutbox::Start(uint64_t next_sequence, bool residuals_lost) {
  next_sequence_ = next_sequence;
  pending_.set_residuals_lost(residuals_lost);
}

void ProgressOutbox::AddReport(const ContributionReport& report) {
  *pending_.add_report() = report;
}

void ProgressOutbox::AddContribution(uint64_t next_sequence,
                                     const ContributionResult& result) {
  next_sequence_ = next_sequence;
  pending_.set_staleness_sum(pending_.staleness_sum() + result.staleness_sum);
  pending_.set_staleness_count(pending_.staleness_count() +
                               result.staleness_count);
  pending_.set_staleness_max(
      std::max(pending_.staleness_max(), result.staleness_max));
  pending_.set_bytes_pushed(pending_.bytes_pushed() + result.bytes_sent);
  pending_.set_bytes_pulled(pending_.bytes_pulled() + result.bytes_received);
}

void ProgressOutbox::AddPhases(const Phases& phases) {
  Phases* const sum = pending_.mutable_phases();
  AddPhaseTimes(phases, sum);
  // States, not sums: the newest holds.
  sum->set_on_gpu(phases.on_gpu());
  sum->set_device_bytes_used(phases.device_bytes_used());
  sum->set_device_bytes_reserved(phases.device_bytes_reserved());
}

void ProgressOutbox::AddHistograms(ContributionHistograms histograms) {
  int variables = histograms.variable_size();
  for (const ContributionHistograms& before : pending_.histograms()) {
    variables += before.variable_size();
  }
  if (variables <= kHistogramVariablesMax) {  // I4
    *pending_.add_histograms() = std::move(histograms);
  }
}

void ProgressOutbox::AddMetrics(const MetricSums& metrics) {
  MergeMetrics(metrics, pending_.mutable_metrics());
}

void ProgressOutbox::OnHeard(uint64_t message_number) {
  while (!unheard_.empty() &&
         unheard_.front().message_number() <= message_number) {
    unheard_.pop_front();  // I1: only now
  }
  send_again_ = std::min(send_again_, unheard_.size());
}

Progress ProgressOutbox::Take() {
  // I2: a copy; the original stays until it is acknowledged.
  if (send_again_ > 0) {
    return unheard_[unheard_.size() - send_again_--];
  }
  return TakePending();
}

// Moves what is pending into one message, as far as it fits, and keeps a copy
// in unheard_.
Progress ProgressOutbox::TakePending() {
  Progress progress;
  progress.set_next_sequence(next_sequence_);
  if (unheard_.size() >= kUnheardMax) {
    // I4: reports wait. I3: each is of one contribution, so next_sequence stops
    // before the first of them.
    progress.set_next_sequence(next_sequence_ -
                               static_cast<uint64_t>(pending_.report_size()));
    return progress;
  }
  std::swap(progress, pending_);
  // I4: the last reports go back, and next_sequence with them (I3).
  const int left = std::max(progress.report_size() - kReportsPerMessageMax, 0);
  for (int i = progress.report_size() - left; i < progress.report_size(); ++i) {
    pending_.add_report()->Swap(progress.mutable_report(i));
  }
  progress.mutable_report()->DeleteSubrange(progress.report_size() - left,
                                            left);
  progress.set_next_sequence(next_sequence_ - static_cast<uint64_t>(left));
  if (Tells(progress)) {
    progress.set_message_number(++message_number_);
    unheard_.push_back(progress);
  }
  return progress;
}

}  // namespace weir
