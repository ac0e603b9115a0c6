#include "server/chief/chief_metrics.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

// One of `names` is 1 and the others are 0, so that a chart has all of them.
void AddChoice(const char* name, const char* help, const char* label,
               std::initializer_list<const char*> names,
               const std::string& chosen, MetricPage* page) {
  for (const char* one : names) {
    page->AddGauge(name, help, {{label, one}}, chosen == one ? 1.0 : 0.0);
  }
}

void AddWorkers(const JobReport& report, MetricPage* page) {
  std::map<std::string, double> states = {
      {"absent", 0.0}, {"starting", 0.0}, {"working", 0.0}, {"done", 0.0}};
  double gap = 0.0;
  for (const WorkerReport& worker : report.worker()) {
    ++states[worker.state()];
    gap = std::max(gap, worker.alone_share() * worker.step_seconds());
    if (worker.state() == "working") {
      page->AddGauge("weir_heartbeat_age_seconds",
                     "Time since the newest heartbeat of a slot's worker.",
                     {{"slot", absl::StrCat(worker.slot())}},
                     worker.heartbeat_age_seconds());
    }
  }
  for (const auto& [state, count] : states) {
    page->AddGauge("weir_job_workers", "Slots by what their worker does.",
                   {{"state", state}}, count);
  }
  page->AddGauge("weir_job_straggler_gap_seconds",
                 "Sync: for how long of a step the slowest worker's "
                 "contribution is the only one that lacks.",
                 {}, gap);
}

void AddCheckpoints(const JobReport& report, MetricPage* page) {
  const CheckpointReport& checkpoint = report.checkpoint();
  page->AddGauge("weir_checkpoint_seconds",
                 "How long the newest committed checkpoint took.", {},
                 checkpoint.last_seconds());
  page->AddGauge("weir_checkpoint_under_way_seconds",
                 "How long the checkpoint under way has taken; 0 without one.",
                 {}, checkpoint.under_way_seconds());
  page->AddGauge("weir_checkpoint_bytes",
                 "Size of the newest committed checkpoint.", {},
                 checkpoint.bytes());
  if (!checkpoint.newest().empty() && checkpoint.bytes() > 0.0) {
    page->AddGauge("weir_checkpoint_last_success_timestamp_seconds",
                   "When the newest checkpoint was committed.", {},
                   report.unix_seconds() - checkpoint.age_seconds());
  }
  page->AddCounter("weir_checkpoint_failures_total",
                   "Checkpoints that could not be written.", {},
                   checkpoint.failures());
}

}  // namespace

void AddChiefMetrics(const JobReport& report, MetricPage* page) {
  page->AddGauge("weir_job_step",
                 "Sync: steps that are done; else contributions.", {},
                 report.step());
  page->AddGauge("weir_job_steps", "Steps of the whole job; 0: it has no end.",
                 {}, report.step_count());
  AddChoice("weir_job_phase", "1 for the phase that the job is in.", "phase",
            {"waiting", "training", "finishing", "done", "failed"},
            report.phase(), page);
  page->AddGauge("weir_job_loss", "The newest loss.", {}, report.loss());
  page->AddGauge("weir_job_examples_per_second", "Speed of all workers.", {},
                 report.examples_per_second());
  page->AddGauge("weir_job_staleness_steps",
                 "Mean staleness of the newest contributions.", {},
                 report.staleness_mean());
  AddChoice("weir_job_cause", "1 for what costs most of a step's time.",
            "cause",
            {"compute", "processors", "slow_worker", "slow_link", "slow_ps",
             "slow_data", "small_model", "checkpoints", "memory", "gpu_input",
             "unknown"},
            report.cause().kind(), page);
  AddWorkers(report, page);
  double lost = 0.0;
  for (const ShardReport& shard : report.shard()) {
    lost += shard.state() == "lost" ? 1.0 : 0.0;
  }
  page->AddGauge("weir_job_ps_lost", "ps that do not answer the chief.", {},
                 lost);
  AddCheckpoints(report, page);
}

}  // namespace weir
