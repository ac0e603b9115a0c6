#include "server/chief/report/worker_meter.h"

#include <algorithm>

#include "client/cc/parameters/contribution.h"
#include "proto/wire/phase_sums.h"
#include "server/chief/report/host_load.h"

namespace weir {
namespace {

// Below it the shares of one contribution would be taken for the rule.
constexpr uint64_t kContributionsMin = 3;

void AddPhases(const Phases& more, Phases* sums) {
  AddPhaseTimes(more, sums);
  sums->set_on_gpu(more.on_gpu());
  sums->set_device_bytes_used(more.device_bytes_used());
}

// Keeps no more than the job has.
WorkerLoad Bounded(const WorkerLoad& load, int shards) {
  WorkerLoad kept = load;
  kept.mutable_shard_wait_ns()->Truncate(
      std::min(shards, kept.shard_wait_ns_size()));
  kept.mutable_variable_wait_ns()->Truncate(
      std::min(kVariableWaitsMax, kept.variable_wait_ns_size()));
  return kept;
}

// By how much place `i` of a list grew. A list that was shorter had a 0 there.
double GrownAt(const google::protobuf::RepeatedField<uint64_t>& begin,
               const google::protobuf::RepeatedField<uint64_t>& end, int i) {
  return GrownSeconds(i < begin.size() ? begin[i] : 0, end[i]);
}

}  // namespace

void WorkerMeter::Add(const Progress& progress, int shards, int64_t now_ns) {
  AddPhases(progress.phases(), &sums_.phases);
  for (const ContributionReport& report : progress.report()) {
    sums_.rows += report.rows();
  }
  sums_.bytes_pushed += progress.bytes_pushed();
  sums_.bytes_pulled += progress.bytes_pulled();
  window_.Add(now_ns, sums_, [](const Sums& begin, const Sums& end) {
    return end.phases.contributions() >=
           begin.phases.contributions() + kContributionsMin;
  });
  if (progress.has_load()) {
    // Another process has this slot now.
    if (loads_.known() &&
        progress.load().usage().cpu_ns() < loads_.end().usage().cpu_ns()) {
      loads_.Clear();
    }
    loads_.Add(now_ns, Bounded(progress.load(), shards));
  }
}

void WorkerMeter::Fill(WorkerReport* report) const {
  if (!window_.known()) {
    return;
  }
  const Phases& begin = window_.begin().phases;
  const Phases& end = window_.end().phases;
  const double seconds = window_.seconds();
  const double count = Grown(begin.contributions(), end.contributions());
  report->set_contributions_per_second(count / seconds);
  report->set_examples_per_second(
      Grown(window_.begin().rows, window_.end().rows) / seconds);
  report->set_bytes_pushed_per_second(
      Grown(window_.begin().bytes_pushed, window_.end().bytes_pushed) /
      seconds);
  report->set_bytes_pulled_per_second(
      Grown(window_.begin().bytes_pulled, window_.end().bytes_pulled) /
      seconds);
  report->set_hold_share(
      std::min(1.0, GrownSeconds(begin.hold_ns(), end.hold_ns()) / seconds));
  report->set_on_gpu(end.on_gpu());
  report->set_device_bytes(static_cast<double>(end.device_bytes_used()));
  const double step = GrownSeconds(begin.step_ns(), end.step_ns());
  if (count > 0.0 && step > 0.0) {
    report->set_step_seconds(step / count);
    const auto share = [step](uint64_t from, uint64_t to) {
      return std::min(1.0, GrownSeconds(from, to) / step);
    };
    report->set_data_share(share(begin.data_wait_ns(), end.data_wait_ns()));
    report->set_pull_share(share(begin.pull_wait_ns(), end.pull_wait_ns()));
    report->set_push_share(share(begin.push_wait_ns(), end.push_wait_ns()));
    report->set_compute_share(share(begin.compute_ns(), end.compute_ns()));
    if (end.on_gpu()) {
      report->set_gpu_busy_share(report->compute_share());
    }
  }
  if (!loads_.known()) {
    return;
  }
  // Of the time between the two loads, in which steps took their share.
  const double load_steps = loads_.seconds() * std::min(1.0, step / seconds);
  for (int s = 0; s < loads_.end().shard_wait_ns_size(); ++s) {
    const double waited = GrownAt(loads_.begin().shard_wait_ns(),
                                  loads_.end().shard_wait_ns(), s);
    report->add_shard_wait_share(
        load_steps > 0.0 ? std::min(1.0, waited / load_steps) : 0.0);
  }
  if (loads_.end().has_usage()) {
    *report->mutable_host_load() = HostLoad(
        loads_.begin().usage(), loads_.end().usage(), loads_.seconds());
  }
}

void WorkerMeter::AddWaits(double* step_seconds,
                           std::vector<double>* waits) const {
  if (!window_.known() || !loads_.known()) {
    return;
  }
  const double share = GrownSeconds(window_.begin().phases.step_ns(),
                                    window_.end().phases.step_ns()) /
                       window_.seconds();
  *step_seconds += loads_.seconds() * std::min(1.0, share);
  const auto& end = loads_.end().variable_wait_ns();
  waits->resize(std::max<size_t>(waits->size(), end.size()));
  for (int v = 0; v < end.size(); ++v) {
    (*waits)[v] += GrownAt(loads_.begin().variable_wait_ns(), end, v);
  }
}

}  // namespace weir
