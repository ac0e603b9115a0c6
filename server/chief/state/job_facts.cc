#include "server/chief/state/job_facts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cc/job/shard_start.h"

namespace weir {
namespace {

// Of a job that has no job file.
constexpr double kLostAfterSeconds = 10.0;

int64_t LostAfterNs(const JobSpec& spec) {
  double seconds = spec.limits().lost_after_seconds();
  if (!(seconds > 0.0)) {
    seconds = kLostAfterSeconds;
  }
  return static_cast<int64_t>(seconds * 1e9);
}

}  // namespace

JobFacts::JobFacts(JobOptions given)
    : options(std::move(given)),
      job(JobSource::Create(options)),
      lost_after_ns(LostAfterNs(options.spec)),
      phase_begin_ns(now_ns()),
      tracker(options.ps_addresses, lost_after_ns),
      roster(options.worker_count, now_ns()),
      reporter(options.worker_count,
               static_cast<int>(options.ps_addresses.size())),
      progress_ns(now_ns()) {}

void JobFacts::Enter(Phase next) {
  phase = next;
  phase_begin_ns = now_ns();
}

double JobFacts::SecondsSince(int64_t then_ns) const {
  return static_cast<double>(now_ns() - then_ns) * 1e-9;
}

void JobFacts::Log(bool warning, std::string text) {
  reporter.AddEvent(warning, text, options.clock->WallNowNs());
  Do(LogLine{warning, std::move(text)});
}

void JobFacts::AddLine(std::string line) {
  if (const auto parsed = ParseTrainLine(line); parsed.has_value()) {
    AddToCurve(*parsed);
  }
  Do(AppendTrainLog{std::move(line)});
}

void JobFacts::AddToCurve(const TrainLine& line) {
  CurvePoint point;
  point.step = static_cast<double>(line.step);
  point.seconds = line.seconds;
  point.loss = line.loss;
  point.examples_per_second = line.examples_per_second;
  point.staleness_mean = line.staleness_mean;
  reporter.curve().Add(point);
}

bool JobFacts::TimeToSay(const std::string& what, double period_s) {
  const auto [said, first] = said_.emplace(what, now_ns());
  if (first || SecondsSince(said->second) < period_s) {
    return false;
  }
  said->second = now_ns();
  return true;
}

void JobFacts::Broadcast(const Command& command) {
  for (const uint64_t stream : roster.streams()) {
    Do(SendCommand{stream, command});
  }
}

std::string JobFacts::WorkerName(int slot) const {
  const std::string& host = roster.worker(slot).host;
  if (host.empty()) {  // nobody has registered for it with this chief
    return absl::StrCat("worker ", slot);
  }
  return absl::StrCat("worker ", slot, " (", host, ")");
}

Sender JobFacts::ChiefSender() const {
  return JobSender(job->held(), layout_fingerprint);
}

uint64_t JobFacts::AskHello(int shard) {
  const uint64_t ticket = tracker.Asked(shard, now_ns());
  Do(ShardCall{shard, HelloCall{}});
  return ticket;
}

void JobFacts::AskHelloIfDue(int shard, int64_t every_ns) {
  if (tracker.Due(shard, every_ns, now_ns())) {
    AskHello(shard);
  }
}

std::vector<uint64_t> JobFacts::AskAll() {
  std::vector<uint64_t> tickets;
  for (int s = 0; s < tracker.count(); ++s) {
    tickets.push_back(AskHello(s));
  }
  return tickets;
}

bool JobFacts::AllFresh(const std::vector<uint64_t>& tickets) const {
  for (int s = 0; s < tracker.count(); ++s) {
    if (!tracker.Fresh(s, tickets[s])) {
      return false;
    }
  }
  return true;
}

void JobFacts::Count() {
  for (int w = 0; w < roster.count(); ++w) {
    job->TakeMarks(w, tracker.Marks(w), roster.mutable_worker(w));
  }
  const uint64_t done = roster.ContributionsDone();
  if (done > contributions_done) {
    contributions_done = done;
    progress_ns = reached_ns = now_ns();
    if (std::exchange(done_may_stay, false)) {
      Do(RemoveDone{});
    }
  }
  const JobSource::Reach reach = job->Count(roster);
  step = reach.step;
  step_count = reach.step_count;
}

bool JobFacts::Done(int slot) const {
  // Before training nobody knows the job's length.
  return phase >= Phase::kTraining && job->Done(slot, roster.worker(slot));
}

void JobFacts::AddHistograms(const Progress& progress) {
  for (const ContributionHistograms& histograms : progress.histograms()) {
    AppendHistograms append;
    append.step = train_log->StepOf(histograms.contribution());
    for (const VariableHistograms& of : histograms.variable()) {
      const std::string& name =
          job->held().variable(static_cast<int>(of.variable())).name();
      if (of.has_values()) {
        append.histograms.emplace_back("values/" + name, of.values());
      }
      if (of.has_gradients()) {
        append.histograms.emplace_back("gradients/" + name, of.gradients());
      }
    }
    // Step 0: a repeat of what was done before this history.
    if (append.step > 0 && !append.histograms.empty()) {
      Do(std::move(append));
    }
  }
}

void JobFacts::EndCurve(uint64_t last_step) {
  if (train_log.has_value()) {
    for (std::string& line : train_log->End(last_step, now_ns())) {
      AddLine(std::move(line));
    }
  }
}

}  // namespace weir
