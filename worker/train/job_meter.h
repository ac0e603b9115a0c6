// Counts what a worker does, on its way to the chief.
//
// Place: between the train loop and ChiefClient; WorkerTask owns one for all
// grants, and its admin port asks it for metrics.
//
// Threads: the loop calls from one thread, as in JobControl; AddMetrics may be
//   called on any.
// Cost: a lock that nobody else holds for long, twice for each contribution.
#ifndef WORKER_TRAIN_JOB_METER_H_
#define WORKER_TRAIN_JOB_METER_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "client/cc/job/job_control.h"
#include "client/cc/parameters/contribution.h"
#include "common/base/mutex.h"
#include "common/metrics/histogram.h"
#include "proto/admin/metric_page.h"
#include "proto/chief.pb.h"

namespace weir {

class JobMeter : public JobControl {
 public:
  // Hands everything on to `control`, which is borrowed until the next call.
  // `counters`, if any, are those of the session of this grant.
  void Begin(JobControl* control, std::function<ClientCounters()> counters);
  // Nothing of Begin's is used any more.
  void End();

  bool EnterContribution() override { return control_->EnterContribution(); }
  void LeaveContribution(uint64_t next_sequence,
                         const ContributionReport& report,
                         const ContributionResult& result) override;
  void AddPhases(const Phases& phases) override;
  void AddHistograms(ContributionHistograms histograms) override {
    control_->AddHistograms(std::move(histograms));
  }
  void OutOfWork() override { control_->OutOfWork(); }

  void AddMetrics(MetricPage* page) const;

 private:
  JobControl* control_ = nullptr;  // of the loop's thread
  TimeHistogram step_;
  mutable Mutex mutex_;
  std::function<ClientCounters()> counters_ ABSL_GUARDED_BY(mutex_);
  ClientCounters before_ ABSL_GUARDED_BY(mutex_);  // of grants that are over
  Phases phases_ ABSL_GUARDED_BY(mutex_);          // sums
  uint64_t examples_ ABSL_GUARDED_BY(mutex_) = 0;
  float loss_ ABSL_GUARDED_BY(mutex_) = 0.0f;
};

}  // namespace weir

#endif  // WORKER_TRAIN_JOB_METER_H_
