#include "server/chief/job_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cc/job/shard_start.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"

namespace weir {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kPingNs = kSecondNs;
constexpr uint32_t kRegisterRetryMs = 100;

int64_t LostAfterNs(const JobSpec& spec) {
  double seconds = spec.limits().lost_after_seconds();
  if (!(seconds > 0.0)) {
    seconds = 10.0;  // the default of a job that has no job file
  }
  return static_cast<int64_t>(seconds * 1e9);
}

RegisterCheck::Options RegisterOptions(const JobOptions& options) {
  RegisterCheck::Options checked;
  checked.sdk_job = options.sdk_job;
  checked.spec = options.spec;
  checked.ps_addresses = options.ps_addresses;
  checked.worker_count = options.worker_count;
  checked.cluster_fingerprint = options.cluster_fingerprint;
  return checked;
}

StartSequence::Options StartOptions(const JobOptions& options,
                                    const ShardTracker& tracker) {
  StartSequence::Options start;
  start.sdk_job = options.sdk_job;
  start.spec = options.spec;
  start.spec_hash = options.spec_hash;
  start.worker_count = options.worker_count;
  start.resume = options.resume;
  start.checkpoint_directory = options.checkpoint_directory;
  for (const TrainLine& line : options.train_lines) {
    start.trained_to = std::max(start.trained_to, line.step);
  }
  start.init_from = options.init_from;
  start.chief_secret = options.chief_secret;
  start.shard_names = tracker.Names();
  start.random = options.random;
  return start;
}

RegisterReply WaitReply(std::string reason) {
  RegisterReply reply;
  reply.mutable_wait()->set_retry_ms(kRegisterRetryMs);
  reply.mutable_wait()->set_reason(std::move(reason));
  return reply;
}

// A job of the SDK has no spec, so nothing filled in the default.
uint32_t TablesFullEvery(const JobSpec& spec) {
  const uint32_t every = spec.checkpoint().tables_full_every();
  return every == 0 ? 5 : every;
}

}  // namespace

JobState::JobState(Options options)
    : options_(std::move(options)),
      lost_after_ns_(LostAfterNs(options_.spec)),
      now_ns_(options_.clock->NowNs()),
      tracker_(options_.ps_addresses, lost_after_ns_),
      start_(StartOptions(options_, tracker_)),
      register_check_(RegisterOptions(options_)),
      roster_(options_.worker_count, now_ns_),
      cycle_(tracker_.count(), options_.checkpoint_directory,
             TablesFullEvery(options_.spec)) {
  phase_begin_ns_ = progress_ns_ = now_ns_;
}

std::vector<Action> JobState::TakeActions() {
  return std::exchange(actions_, {});
}

// ------------------------------------------------------------------ helpers

double JobState::SecondsSince(int64_t then_ns) const {
  return static_cast<double>(now_ns_ - then_ns) * 1e-9;
}

bool JobState::TimeToSay(const std::string& what, double period_s) {
  for (auto& [said, at_ns] : said_) {
    if (said == what) {
      if (SecondsSince(at_ns) < period_s) {
        return false;
      }
      at_ns = now_ns_;
      return true;
    }
  }
  // What has just begun is not worth a line yet: the first one comes when it
  // has lasted for a whole period.
  said_.emplace_back(what, now_ns_);
  return false;
}

void JobState::Say(std::string text, bool warning) {
  actions_.push_back(LogLine{warning, std::move(text)});
}

void JobState::AskHello(int shard) {
  tracker_.Asked(shard, now_ns_);
  actions_.push_back(ShardCall{shard, HelloCall{}});
}

std::vector<uint64_t> JobState::AskAll() {
  std::vector<uint64_t> tickets;
  for (int s = 0; s < tracker_.count(); ++s) {
    tickets.push_back(tracker_.Asked(s, now_ns_));
    actions_.push_back(ShardCall{s, HelloCall{}});
  }
  return tickets;
}

bool JobState::AllFresh(const std::vector<uint64_t>& tickets) const {
  for (int s = 0; s < tracker_.count(); ++s) {
    if (!tracker_.Fresh(s, tickets[s])) {
      return false;
    }
  }
  return true;
}

Sender JobState::ChiefSender() const {
  return JobSender(start_.declaration(), start_.layout().fingerprint());
}

std::string JobState::WorkerName(int slot) const {
  const std::string& host = roster_.worker(slot).host;
  if (host.empty()) {  // nobody has registered for it with this chief
    return absl::StrCat("worker ", slot);
  }
  return absl::StrCat("worker ", slot, " (", host, ")");
}

void JobState::Broadcast(const Command& command) {
  for (const uint64_t stream : roster_.streams()) {
    actions_.push_back(SendCommand{stream, command});
  }
}

// ------------------------------------------------------------------ workers

Grant JobState::MakeGrant(int slot) const {
  Grant grant;
  *grant.mutable_sender() = ChiefSender();
  grant.mutable_sender()->set_slot(static_cast<uint32_t>(slot));
  grant.mutable_sender()->set_generation(roster_.worker(slot).generation);
  for (const std::string& address : options_.ps_addresses) {
    grant.add_ps_address(address);
  }
  grant.set_slot_count(static_cast<uint32_t>(options_.worker_count));
  grant.set_contributions_per_step(per_step_);
  grant.set_contribution_count(total_);
  *grant.mutable_applied_range() = start_.declaration().applied_range();
  grant.set_next_sequence(roster_.worker(slot).next_sequence);
  grant.set_base_version(start_.declaration().base_version());
  grant.set_pushes_before(PushesBefore(slot));
  return grant;
}

absl::StatusOr<RegisterReply> JobState::OnRegister(
    const RegisterRequest& request) {
  now_ns_ = options_.clock->NowNs();
  if (superseded_) {
    return Superseded();
  }
  if (phase_ >= Phase::kEnding) {
    return AnswerLate(request, final_status_);
  }
  WEIR_RETURN_IF_ERROR(register_check_.Check(request));
  // From here on the worker is owed an answer at the end, granted or not.
  roster_.mutable_worker(static_cast<int>(request.rank()))->asked = true;
  if (phase_ == Phase::kStarting) {
    Advance();
    if (const auto values = AskForValues(request); values.has_value()) {
      return *values;
    }
    return WaitReply(start_.Describe());
  }
  if (options_.sdk_job && phase_ > Phase::kTraining) {
    return AnswerLate(request, absl::OkStatus());  // every worker has finished
  }
  if (phase_ == Phase::kReady) {
    const absl::Status status = EnterTraining(request.sample_count());
    if (!status.ok()) {
      Fail(status);
      return status;
    }
  }
  // A process that slept through a restore must not take the slot from the one
  // that was started for it.
  if (request.held_history() != 0 &&
      request.held_history() != start_.declaration().history()) {
    return absl::FailedPreconditionError(
        "the job was restored under another history; start this task again");
  }
  const int slot = static_cast<int>(request.rank());
  uint64_t ended = 0;
  const absl::StatusOr<bool> granted = roster_.Register(
      request, request.held_history() == start_.declaration().history(),
      tracker_.NextSequenceMin(slot), now_ns_, &ended);
  if (ended != 0) {
    actions_.push_back(EndStream{
        ended, absl::PermissionDeniedError(absl::StrCat(
                   "worker ", slot, " was replaced by a newer process on ",
                   request.host()))});
  }
  WEIR_RETURN_IF_ERROR(granted.status());
  // This begins the round that fences the process before, so that the worker
  // need not wait for the next tick.
  Advance();
  if (!*granted) {
    // A worker polls until every shard knows its generation and its marks are
    // final (I2 of the Roster).
    return WaitReply("fencing off earlier processes");
  }
  RegisterReply reply;
  *reply.mutable_grant() = MakeGrant(slot);
  return reply;
}

absl::Status JobState::TakeReports(int slot, const Progress& progress,
                                   int repeated, bool heard) {
  if (heard) {
    repeated = progress.report_size();
  } else {
    train_log_->AddCounts(progress);
  }
  // The contributions were done one after the other since the heartbeat
  // before, so their times are spread evenly over it.
  const int64_t since_ns = roster_.worker(slot).heard_before_ns;
  int first = repeated;
  if (sync() && !heard) {
    // Marks may say that a contribution is done before its report is here. In
    // sync the log tells repeats apart by their number, and lacks a line
    // without this report.
    first = 0;
  }
  for (int i = first; i < progress.report_size(); ++i) {
    const ContributionReport& report = progress.report(i);
    train_log_->AddContribution(
        report,
        since_ns + (now_ns_ - since_ns) * (i + 1) / progress.report_size());
    if (report.bad() &&
        ++bad_count_ > options_.spec.limits().max_bad_contributions()) {
      return absl::OutOfRangeError(absl::StrCat(
          WorkerName(slot), ", contribution ", report.contribution(),
          ": NaN or Inf in the gradient of '", report.bad_variable(), "'; ",
          bad_count_, " bad contributions, limits.max_bad_contributions is ",
          options_.spec.limits().max_bad_contributions()));
    }
  }
  if (progress.error().empty()) {
    return absl::OkStatus();
  }
  const absl::Status error(
      static_cast<absl::StatusCode>(progress.error_code()),
      absl::StrCat(WorkerName(slot), ": ", progress.error()));
  // Only a permanent error of the worker's own is one of the job. A worker that
  // was replaced, lost a peer or got a signal has or gets a successor.
  const int exit_code = ExitCodeFor(error);
  if (exit_code > 0 && exit_code < 128 && exit_code != kExitReplaced) {
    return error;
  }
  Say(std::string(error.message()), true);
  return absl::OkStatus();
}

absl::Status JobState::OnProgress(uint64_t stream, const Progress& progress) {
  now_ns_ = options_.clock->NowNs();
  if (superseded_) {
    return Superseded();
  }
  bool fresh = false;
  uint64_t ended = 0;
  int repeated = 0;
  WEIR_RETURN_IF_ERROR(
      roster_.OnProgress(stream, progress, now_ns_, &fresh, &ended, &repeated));
  if (ended != 0) {
    actions_.push_back(
        EndStream{ended, absl::CancelledError("a newer stream is open")});
  }
  const int slot = static_cast<int>(progress.slot());
  if (fresh) {
    Greet(stream);
  }
  Roster::Worker* const worker = roster_.mutable_worker(slot);
  if (progress.bytes_moved() > worker->bytes_moved) {
    worker->bytes_moved = progress.bytes_moved();
    moved_ns_ = now_ns_;
  }
  const bool heard = Hear(stream, progress);
  // Reports are taken while the job ends, too: a worker's last ones follow the
  // Stop that it heard.
  if (train_log_.has_value() && phase_ <= Phase::kEnding) {
    const absl::Status status = TakeReports(slot, progress, repeated, heard);
    if (!status.ok()) {
      Fail(status);
      return absl::OkStatus();
    }
    if (start_.declaration().update().has_bounded_staleness()) {
      // A slot without work must not hold the others back by its clock.
      roster_.SetRetired(slot, progress.out_of_work());
    }
  }
  Advance();
  return absl::OkStatus();
}

void JobState::OnStreamLost(uint64_t stream) {
  now_ns_ = options_.clock->NowNs();
  const int slot = roster_.OnStreamLost(stream, now_ns_);
  if (slot >= 0 && Running()) {
    const bool finished = options_.sdk_job && roster_.worker(slot).out_of_work;
    Say(absl::StrCat(WorkerName(slot), finished ? " has finished" : " is gone"),
        /*warning=*/!finished);
    if (finished) {
      AskAll();  // the shards know whether the program retired its slot
    }
  }
  Advance();
}

// ------------------------------------------------------------------ running

uint64_t JobState::ContributionsPerStep(int slot) const {
  const auto w = static_cast<uint32_t>(slot);
  const auto count = static_cast<uint32_t>(roster_.count());
  if (w >= per_step_) {
    return 0;  // fewer contributions in a step than workers
  }
  return (per_step_ - w + count - 1) / count;
}

uint64_t JobState::CountOfSlot(int slot) const {
  if (sync()) {
    return (step_count_ - start_.declaration().base_version()) *
           ContributionsPerStep(slot);
  }
  return static_cast<uint64_t>(list_.ContributionCount(slot, roster_.count()));
}

bool JobState::Done(int slot) const {
  const Roster::Worker& worker = roster_.worker(slot);
  if (phase_ < Phase::kTraining) {
    return false;  // nobody knows the job's length yet
  }
  if (options_.sdk_job) {
    return worker.retired;
  }
  return worker.next_sequence >= CountOfSlot(slot);
}

void JobState::AdvanceProgress() {
  if (options_.sdk_job) {
    AdvanceSdkProgress();
    return;
  }
  uint64_t done = 0;
  uint64_t step = step_count_;
  for (int w = 0; w < roster_.count(); ++w) {
    Roster::Worker* worker = roster_.mutable_worker(w);
    // Marks are as old as the last Hello, and a worker that is gone tells
    // nothing more: the larger of the two is the newer one.
    worker->next_sequence =
        std::min(std::max(worker->next_sequence, tracker_.NextSequenceMin(w)),
                 CountOfSlot(w));
    done += worker->next_sequence;
    if (ContributionsPerStep(w) > 0) {
      // A step is done when the slowest of those that take part in it is.
      step =
          std::min(step, start_.declaration().base_version() +
                             worker->next_sequence / ContributionsPerStep(w));
    }
  }
  if (done > contributions_done_) {
    contributions_done_ = done;
    progress_ns_ = reached_ns_ = now_ns_;
  }
  if (sync()) {
    step_ = step;
    return;
  }
  // Contributions of the histories before count, too.
  step_ = static_cast<uint64_t>(list_.total() - list_.remaining_count()) +
          contributions_done_;
}

void JobState::AdvanceRound() {
  if (roster_.NeedsRound()) {
    SetSlotsRequest request;
    *request.mutable_sender() = ChiefSender();
    for (const SetSlotsRequest::Slot& slot : roster_.BeginRound()) {
      *request.add_slot() = slot;
    }
    slots_set_.assign(tracker_.count(), false);
    for (int s = 0; s < tracker_.count(); ++s) {
      actions_.push_back(ShardCall{s, request});
    }
    // Asked behind SetSlots on the same queue, so these Hellos read marks that
    // no older generation can move any more (I2 of the Roster).
    round_tickets_ = AskAll();
  }
  if (roster_.in_round() && AllFresh(round_tickets_) &&
      std::count(slots_set_.begin(), slots_set_.end(), true) ==
          tracker_.count()) {
    const uint64_t unreported = roster_.EndRound(
        [this](int slot) { return tracker_.NextSequenceMin(slot); }, now_ns_);
    if (train_log_.has_value()) {
      train_log_->AddUnreported(unreported);
    }
  }
}

void JobState::TickRunning() {
  for (int s = 0; s < tracker_.count(); ++s) {
    if (tracker_.Due(s, kPingNs, now_ns_)) {
      AskHello(s);
    }
  }
  for (const uint64_t stream : roster_.DropSilent(lost_after_ns_, now_ns_)) {
    actions_.push_back(EndStream{
        stream, absl::DeadlineExceededError("no heartbeat: register again")});
  }
  if (schedule_.has_value()) {
    schedule_->Observe(step_, now_ns_);
  }
  SaySlowCheckpoint();
  WatchProgress();
  WatchEach();
}

void JobState::Advance() {
  if (phase_ == Phase::kStarting) {
    AdvanceStart();
  }
  if (Running() && !Finished()) {  // I4: after that a lost shard is no loss
    const absl::Status lost = tracker_.Check(now_ns_, reached_ns_);
    if (absl::IsPermissionDenied(lost)) {
      Fail(lost);
    } else if (!lost.ok()) {
      // The job goes back to its last checkpoint, so what the other shards
      // hold is of no more use: Shutdown makes their tasks start again.
      End(lost, true);
    }
  }
  if (phase_ >= Phase::kTraining && phase_ <= Phase::kEvaluating) {
    AdvanceProgress();
    AdvanceRound();
    if (train_log_.has_value()) {
      for (std::string& line : train_log_->Advance(step_, now_ns_)) {
        actions_.push_back(AppendTrainLog{std::move(line)});
      }
    }
    // Last: progress and rounds decide what a checkpoint may do now.
    AdvanceCheckpoint();
  }
  AdvanceEnd();
}

void JobState::OnTick() {
  now_ns_ = options_.clock->NowNs();
  if (phase_ == Phase::kStarting) {
    TickStart();
  } else if (Running()) {
    TickRunning();
  }
  Advance();
}

}  // namespace weir
