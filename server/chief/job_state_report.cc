// JobState's answers to those who look on: its status, and the report of what
// holds the job back.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "client/cc/parameters/contribution.h"
#include "common/base/printable.h"
#include "proto/job/job_spec_text.h"
#include "server/chief/job_state.h"

namespace weir {
namespace {

constexpr int64_t kReportNs = 1'000'000'000;

const char* PhaseName(ChiefStatus::Phase phase) {
  switch (phase) {
    case ChiefStatus::TRAINING:
      return "training";
    case ChiefStatus::FINISHING:
      return "finishing";
    case ChiefStatus::DONE:
      return "done";
    case ChiefStatus::FAILED:
      return "failed";
    default:
      return "waiting";
  }
}

const char* StateName(const Roster::Worker& worker, bool done) {
  if (done) {
    return "done";
  }
  if (worker.connected()) {
    return "working";
  }
  // One whose heartbeats have ended does not start: it is gone until another
  // process takes its slot.
  const bool gone =
      worker.state == Roster::Worker::State::kAbsent || worker.heard_ns != 0;
  return gone ? "absent" : "starting";
}

const char* StateName(const HelloReply& hello) {
  switch (hello.state()) {
    case ACTIVE:
      return "active";
    case LOADED:
      return "loaded";
    default:
      return "empty";
  }
}

}  // namespace

ChiefStatus JobState::status() const {
  ChiefStatus status;
  if (facts_.train_log.has_value()) {
    status = facts_.train_log->newest();
  }
  if (facts_.phase < Phase::kTraining) {
    status.set_phase(ChiefStatus::WAITING);
    status.set_message(start_.Describe());
  } else if (facts_.phase == Phase::kTraining) {
    status.set_phase(ChiefStatus::TRAINING);
  } else if (!end_.status().ok()) {
    status.set_phase(ChiefStatus::FAILED);
    status.set_message(std::string(end_.status().message()));
  } else if (over() || end_.done_before()) {
    status.set_phase(ChiefStatus::DONE);
  } else {
    status.set_phase(ChiefStatus::FINISHING);
  }
  status.set_step(facts_.step);
  if (facts_.step_count != JobSource::kEndless) {
    status.set_step_count(facts_.step_count);
  }
  status.set_checkpoint(facts_.checkpoint);
  return status;
}

void JobState::AskForReports() {
  if (report_asked_ns_ != 0 && facts_.now_ns() - report_asked_ns_ < kReportNs) {
    return;
  }
  report_asked_ns_ = facts_.now_ns();
  report_pending_.resize(facts_.tracker.count());
  for (int s = 0; s < facts_.tracker.count(); ++s) {
    // One at a time: a ps that hangs must not fill its queue.
    if (!report_pending_[s]) {
      report_pending_[s] = true;
      facts_.Do(ShardCall{s, ReportCall{}});
    }
  }
}

void JobState::OnReportStatus(int shard,
                              const absl::StatusOr<PsStatus>& status) {
  report_pending_[shard] = false;
  if (status.ok()) {
    facts_.reporter.AddShard(shard, *status, facts_.now_ns());
  }
}

void JobState::FillWorkers(JobReport* report) const {
  for (int w = 0; w < facts_.roster.count(); ++w) {
    const Roster::Worker& known = facts_.roster.worker(w);
    WorkerReport* const worker = report->add_worker();
    worker->set_slot(static_cast<uint32_t>(w));
    worker->set_host(known.host);
    const bool began = facts_.phase >= Phase::kTraining;
    worker->set_state(StateName(known, began && facts_.Done(w)));
    if (known.connected()) {
      worker->set_heartbeat_age_seconds(facts_.SecondsSince(known.heard_ns));
    }
  }
}

void JobState::FillShards(JobReport* report) const {
  for (int s = 0; s < facts_.tracker.count(); ++s) {
    ShardReport* const shard = report->add_shard();
    shard->set_index(static_cast<uint32_t>(s));
    shard->set_address(facts_.options.ps_addresses[s]);
    shard->set_state(facts_.tracker.last_error(s).ok()
                         ? StateName(facts_.tracker.hello(s))
                         : "lost");
  }
}

JobReport JobState::Report() const {
  const ChiefStatus now = status();
  JobReport report;
  const Declaration& held = facts_.job->held();
  report.set_job(
      Printable(held.job().empty() ? facts_.options.spec.name() : held.job()));
  report.set_unix_seconds(
      static_cast<double>(facts_.options.clock->WallNowNs()) / 1e9);
  report.set_phase(PhaseName(now.phase()));
  report.set_message(Printable(now.message()));
  report.set_mode(UpdateModeName(held.update()));
  report.set_step(static_cast<double>(now.step()));
  report.set_step_count(static_cast<double>(now.step_count()));
  report.set_loss(now.loss());
  report.set_examples_per_second(now.examples_per_second());
  report.set_staleness_mean(now.staleness_mean());
  report.set_staleness_max(static_cast<double>(now.staleness_max()));
  report.set_examples(static_cast<double>(now.examples()));
  if (facts_.train_log.has_value()) {
    report.set_train_seconds(facts_.train_log->seconds(facts_.now_ns()));
  }
  FillWorkers(&report);
  FillShards(&report);
  std::vector<std::string> variables;
  const int count = std::min(held.variable_size(), kVariableWaitsMax);
  for (int v = 0; v < count; ++v) {
    variables.push_back(Printable(held.variable(v).name()));
  }
  facts_.reporter.Fill(variables, facts_.now_ns(), &report);
  const CheckpointCycle& cycle = checkpoints_.cycle();
  if (cycle.state() != CheckpointCycle::State::kIdle) {
    report.mutable_checkpoint()->set_under_way_seconds(
        facts_.SecondsSince(cycle.begun_ns()));
  }
  return report;
}

}  // namespace weir
