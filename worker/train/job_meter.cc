#include "worker/train/job_meter.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/wire/phase_sums.h"

namespace weir {
namespace {

void AddCounters(const ClientCounters& more, ClientCounters* sum) {
  sum->bytes_sent += more.bytes_sent;
  sum->bytes_received += more.bytes_received;
  sum->reconnects += more.reconnects;
  std::vector<int64_t>& waits = sum->shard_wait_ns;
  waits.resize(std::max(waits.size(), more.shard_wait_ns.size()));
  for (size_t s = 0; s < more.shard_wait_ns.size(); ++s) {
    waits[s] += more.shard_wait_ns[s];
  }
}

}  // namespace

void JobMeter::Begin(JobControl* control,
                     std::function<ClientCounters()> counters) {
  control_ = control;
  MutexLock lock(&mutex_);
  counters_ = std::move(counters);
}

void JobMeter::End() {
  control_ = nullptr;
  MutexLock lock(&mutex_);
  if (counters_) {
    AddCounters(counters_(), &before_);
    counters_ = nullptr;
  }
}

void JobMeter::LeaveContribution(uint64_t next_sequence,
                                 const ContributionReport& report,
                                 const ContributionResult& result) {
  {
    MutexLock lock(&mutex_);
    examples_ += report.rows();
    if (report.rows() > 0) {
      loss_ = report.loss();
    }
  }
  control_->LeaveContribution(next_sequence, report, result);
}

void JobMeter::AddPhases(const Phases& phases) {
  step_.Record(static_cast<int64_t>(phases.step_ns()));
  {
    MutexLock lock(&mutex_);
    AddPhaseTimes(phases, &phases_);
    phases_.set_on_gpu(phases.on_gpu());
    phases_.set_device_bytes_used(phases.device_bytes_used());
  }
  control_->AddPhases(phases);
}

void JobMeter::AddMetrics(MetricPage* page) const {
  MutexLock lock(&mutex_);
  ClientCounters counters = before_;
  if (counters_) {
    AddCounters(counters_(), &counters);
  }
  page->AddCounter("weir_worker_items_total", "Contributions that are done.",
                   {}, static_cast<double>(phases_.contributions()));
  page->AddCounter("weir_worker_examples_total", "Samples of contributions.",
                   {}, static_cast<double>(examples_));
  const auto phase = [page](const char* name, uint64_t ns) {
    page->AddCounter("weir_worker_phase_seconds_total",
                     "Where the time of contributions went.", {{"phase", name}},
                     static_cast<double>(ns) * 1e-9);
  };
  phase("data", phases_.data_wait_ns());
  phase("pull", phases_.pull_wait_ns());
  phase("compute", phases_.compute_ns());
  phase("push", phases_.push_wait_ns());
  phase("hold", phases_.hold_ns());
  page->AddHistogram("weir_worker_step_seconds", "Time of a contribution.", {},
                     step_.Snapshot());
  for (size_t s = 0; s < counters.shard_wait_ns.size(); ++s) {
    page->AddCounter("weir_worker_wait_seconds_total",
                     "Waits by the shard whose answer came last.",
                     {{"shard", absl::StrCat(s)}},
                     static_cast<double>(counters.shard_wait_ns[s]) * 1e-9);
  }
  page->AddCounter("weir_worker_reconnects_total",
                   "Streams and calls to ps that broke.", {},
                   static_cast<double>(counters.reconnects));
  page->AddCounter("weir_worker_pushed_bytes_total",
                   "Payloads of gradients that were sent.", {},
                   static_cast<double>(counters.bytes_sent));
  page->AddCounter("weir_worker_pulled_bytes_total",
                   "Payloads of values that were received.", {},
                   static_cast<double>(counters.bytes_received));
  page->AddGauge("weir_worker_loss", "Loss of the newest contribution.", {},
                 loss_);
  if (phases_.on_gpu()) {
    page->AddGauge("weir_worker_device_bytes",
                   "Memory of the GPU that this worker uses.", {},
                   static_cast<double>(phases_.device_bytes_used()));
    page->AddCounter("weir_worker_gpu_busy_seconds_total",
                     "Time for which the GPU computed, by its own clock.", {},
                     static_cast<double>(phases_.compute_ns()) * 1e-9);
  }
}

}  // namespace weir
