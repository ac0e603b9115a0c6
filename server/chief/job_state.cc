// Long because every event of the job is answered here, in the order of its
// life; checkpoints and the end have their own file.
#include "server/chief/job_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "proto/job/job_spec_text.h"
#include "proto/job/learning_rate.h"
#include "proto/wire/declaration_io.h"

namespace weir {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kStartHelloNs = kSecondNs / 2;
constexpr int64_t kPingNs = kSecondNs;
constexpr uint32_t kRegisterRetryMs = 100;

int64_t LostAfterNs(const JobSpec& spec) {
  const double seconds = spec.limits().lost_after_seconds();
  return static_cast<int64_t>((seconds > 0.0 ? seconds : 10.0) * 1e9);
}

StartSequence::Options StartOptions(const JobState::Options& options,
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

// A job of the SDK has no spec.
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
  // The first time counts from here.
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
  Sender sender;
  sender.set_job(start_.declaration().job());
  sender.set_history(start_.declaration().history());
  sender.set_layout_fingerprint(start_.layout().fingerprint());
  return sender;
}

std::string JobState::WorkerName(int slot) const {
  const std::string& host = roster_.worker(slot).host;
  return host.empty() ? absl::StrCat("worker ", slot)
                      : absl::StrCat("worker ", slot, " (", host, ")");
}

void JobState::Broadcast(const Command& command) {
  for (const uint64_t stream : roster_.streams()) {
    actions_.push_back(SendCommand{stream, command});
  }
}

// -------------------------------------------------------------------- start

void JobState::Start() {
  now_ns_ = options_.clock->NowNs();
  for (int s = 0; s < tracker_.count(); ++s) {
    AskHello(s);
  }
}

void JobState::TickStart() {
  if (start_.state() == StartSequence::State::kHello) {
    for (int s = 0; s < tracker_.count(); ++s) {
      if (tracker_.Fresh(s, 1)) {
        continue;
      }
      if (tracker_.Due(s, kStartHelloNs, now_ns_)) {
        AskHello(s);
      }
      const double waited = SecondsSince(phase_begin_ns_);
      const std::string name = tracker_.Name(s);
      if (waited > options_.start_wait) {
        Fail(absl::UnavailableError(
            absl::StrCat(name, " did not answer for ", static_cast<int>(waited),
                         " s: ", tracker_.last_error(s).message())));
        return;
      }
      if (TimeToSay(name, 5.0)) {
        Say(absl::StrCat("waiting for ", name, ", ", static_cast<int>(waited),
                         " s"));
      }
    }
    return;
  }
  if (start_.state() == StartSequence::State::kNeedsVariables ||
      start_.state() == StartSequence::State::kAssigning) {
    WatchProgress();
  }
}

void JobState::AdvanceStart() {
  if (start_.state() == StartSequence::State::kHello &&
      tracker_.AllAnswered()) {
    start_.OnHellos(tracker_.hellos(), &actions_);
    progress_ns_ = now_ns_;
  }
  if (start_.state() == StartSequence::State::kNeedsVariables &&
      !variables_.empty()) {
    start_.OnVariables(variables_, &actions_);
  }
  if (start_.state() == StartSequence::State::kNeedsVariables &&
      sdk_declaration_.has_value()) {
    start_.OnSdkDeclaration(*sdk_declaration_, &actions_);
  }
  if (start_.state() == StartSequence::State::kFailed) {
    Fail(start_.status());
    return;
  }
  if (start_.state() != StartSequence::State::kReady) {
    return;
  }
  const Declaration& declaration = start_.declaration();
  for (int s = 0; s < tracker_.count(); ++s) {
    has_blocks_.push_back(start_.layout().block_count(s) > 0);
    tracker_.SetIncarnation(s, start_.incarnations()[s]);
  }
  tracker_.Expect(declaration.history(), has_blocks_, now_ns_);
  for (int w = 0; w < roster_.count(); ++w) {
    roster_.SetGeneration(w, tracker_.GenerationMax(w));
    roster_.mutable_worker(w)->next_sequence = tracker_.NextSequenceMin(w);
    roster_.mutable_worker(w)->reported = tracker_.NextSequenceMin(w);
  }
  variables_ = declaration.variable();
  if (declaration.update().has_sync()) {
    per_step_ = declaration.update().sync().contributions();
  }
  phase_ = Phase::kReady;
  phase_begin_ns_ = progress_ns_ = now_ns_;
  if (start_.adopted()) {
    Say("took over the shards of a job under way");
  }
}

TrainLog::Options JobState::TrainLogOptions() const {
  const Declaration& declaration = start_.declaration();
  TrainLog::Options log;
  log.contributions_per_step = per_step_;
  log.every_steps = std::max(options_.spec.train().log_every_steps(), 1u);
  log.base_step = step_;
  log.begin_ns = now_ns_;
  log.first_step = declaration.base_version();
  log.first_contribution =
      static_cast<uint64_t>(list_.total() - list_.remaining_count());
  uint64_t logged = declaration.base_version();
  for (const TrainLine& line : options_.train_lines) {
    if (line.step <= step_) {
      logged = std::max(logged, line.step);
      log.base_seconds = line.seconds;
      log.base_examples = line.examples;
    }
  }
  if (sync() && start_.adopted()) {
    // Steps without a line may still be reported.
    log.base_step = std::min(logged, step_);
  }
  log.learning_rate = [this](uint64_t t) {
    return LearningRate(options_.spec.schedule(), t);
  };
  return log;
}

absl::Status JobState::ReadLength(uint64_t sample_count) {
  const Declaration& declaration = start_.declaration();
  WEIR_ASSIGN_OR_RETURN(total_, ContributionCount(options_.spec.train(),
                                                  sample_count, per_step_));
  std::vector<ContributionRange> applied;
  for (int i = 0; i + 1 < declaration.applied_range_size(); i += 2) {
    applied.push_back({static_cast<int64_t>(declaration.applied_range(i)),
                       static_cast<int64_t>(declaration.applied_range(i + 1))});
  }
  const absl::StatusOr<ContributionList> list =
      ContributionList::Create(applied, static_cast<int64_t>(total_));
  if (!list.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job is ", total_,
                     " contributions long, shorter than what its checkpoint "
                     "holds: ",
                     list.status().message()));
  }
  list_ = *list;
  step_count_ = total_;
  if (sync()) {
    step_count_ =
        declaration.base_version() +
        (static_cast<uint64_t>(list_.remaining_count()) + per_step_ - 1) /
            per_step_;
  }
  return absl::OkStatus();
}

absl::Status JobState::EnterTraining(uint64_t sample_count) {
  const Declaration& declaration = start_.declaration();
  if (!options_.sdk_job) {
    WEIR_RETURN_IF_ERROR(ReadLength(sample_count));
  }
  phase_ = Phase::kTraining;
  AdvanceProgress();
  progress_ns_ = now_ns_;
  if (!options_.sdk_job) {
    train_log_.emplace(TrainLogOptions());
  }
  CheckpointSchedule::Options schedule;
  schedule.every_steps = options_.spec.checkpoint().every_steps();
  schedule.every_seconds = options_.spec.checkpoint().every_seconds();
  schedule.sync = sync();
  schedule_.emplace(schedule, step_, now_ns_);
  if (start_.restored()) {
    checkpoint_step_ = step_;
    checkpoint_ = declaration.restored_from();
  } else if (start_.adopted() && options_.newest.has_value() &&
             (options_.newest->declaration().history() ==
                  declaration.history() ||
              options_.newest->name() == declaration.restored_from())) {
    // Of this history, or the one that it began with.
    checkpoint_step_ = options_.newest->step();
    checkpoint_ = options_.newest->name();
  }
  actions_.push_back(CutTrainLog{step_});
  Say(absl::StrCat("training from ",
                   sync()             ? "step "
                   : options_.sdk_job ? "push "
                                      : "contribution ",
                   step_,
                   options_.sdk_job ? "" : absl::StrCat(" to ", step_count_)));
  return absl::OkStatus();
}

// ------------------------------------------------------------------ workers

absl::Status JobState::CheckRegister(const RegisterRequest& request) {
  const std::string who =
      absl::StrCat("worker ", request.rank(), " (", request.host(), ")");
  if (request.rank() >= static_cast<uint32_t>(options_.worker_count)) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, ": the cluster has ", options_.worker_count,
                     " workers; compare TF_CONFIG of both tasks"));
  }
  if (request.cluster_fingerprint() != 0 &&
      request.cluster_fingerprint() != options_.cluster_fingerprint) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, " lists other ps, or in another order, than the chief (",
        absl::StrJoin(options_.ps_addresses, ","),
        "); compare TF_CONFIG of both tasks"));
  }
  if (request.has_declaration() != options_.sdk_job) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, options_.sdk_job
                 ? " runs a job file, the chief was started without --job"
                 : " is a program of the SDK, the chief was started with "
                   "--job"));
  }
  if (options_.sdk_job) {
    return CheckBrought(request, who);
  }
  const std::string spec = FirstDifference(options_.spec, request.job_spec());
  if (!spec.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, " runs another JobSpec: ", spec));
  }
  if (request.variable_size() == 0 || request.sample_count() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, " has ", request.variable_size(), " variables and ",
        request.sample_count(), " samples; both must be at least 1"));
  }
  if (sample_count_ != 0 && request.sample_count() != sample_count_) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, " has a data set of ", request.sample_count(),
                     " samples, other workers have ", sample_count_));
  }
  auto list = request.variable();
  WEIR_RETURN_IF_ERROR(AssignGroups(options_.spec, &list));
  if (!variables_.empty()) {
    const std::string variable = FirstVariableDifference(variables_, list);
    if (!variable.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(who, " brings another model: ", variable));
    }
  } else {
    variables_ = list;
  }
  sample_count_ = request.sample_count();
  return absl::OkStatus();
}

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
  WEIR_RETURN_IF_ERROR(CheckRegister(request));
  roster_.mutable_worker(static_cast<int>(request.rank()))->asked = true;
  if (phase_ == Phase::kStarting) {
    Advance();
    const auto values = AskForValues(request);
    return values.has_value() ? *values : WaitReply(start_.Describe());
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
  Advance();
  if (!*granted) {
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
  // They were done one after the other since the heartbeat before.
  const int64_t since_ns = roster_.worker(slot).heard_before_ns;
  // The log tells sync's repeats apart itself, and may lack lines of them.
  for (int i = sync() && !heard ? 0 : repeated; i < progress.report_size();
       ++i) {
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
  // While it ends, too: a worker's last reports follow its stop.
  if (train_log_.has_value() && phase_ <= Phase::kEnding) {
    const absl::Status status = TakeReports(slot, progress, repeated, heard);
    if (!status.ok()) {
      Fail(status);
      return absl::OkStatus();
    }
    if (start_.declaration().update().has_bounded_staleness()) {
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
      AskAll();  // whether its slot is retired
    }
  }
  Advance();
}

// ------------------------------------------------------------------ running

uint64_t JobState::ContributionsPerStep(int slot) const {
  const auto w = static_cast<uint32_t>(slot);
  const auto count = static_cast<uint32_t>(roster_.count());
  return w < per_step_ ? (per_step_ - w + count - 1) / count : 0;
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
  return phase_ >= Phase::kTraining &&
         (options_.sdk_job ? worker.retired
                           : worker.next_sequence >= CountOfSlot(slot));
}

void JobState::AdvanceProgress() {
  if (options_.sdk_job) {
    AdvanceBrought();
    return;
  }
  uint64_t done = 0;
  uint64_t step = step_count_;
  for (int w = 0; w < roster_.count(); ++w) {
    Roster::Worker* worker = roster_.mutable_worker(w);
    worker->next_sequence =
        std::min(std::max(worker->next_sequence, tracker_.NextSequenceMin(w)),
                 CountOfSlot(w));
    done += worker->next_sequence;
    if (ContributionsPerStep(w) > 0) {
      step =
          std::min(step, start_.declaration().base_version() +
                             worker->next_sequence / ContributionsPerStep(w));
    }
  }
  if (done > contributions_done_) {
    contributions_done_ = done;
    progress_ns_ = reached_ns_ = now_ns_;
  }
  step_ = sync()
              ? step
              : static_cast<uint64_t>(list_.total() - list_.remaining_count()) +
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

void JobState::WatchProgress() {
  std::vector<std::string> missing;
  for (int w = 0; w < roster_.count(); ++w) {
    const Roster::Worker& worker = roster_.worker(w);
    if (worker.connected() || Done(w)) {
      continue;
    }
    missing.push_back(WorkerName(w));
    const double waited = SecondsSince(worker.absent_since_ns);
    if (TimeToSay(absl::StrCat("worker ", w), 10.0) && waited >= 10.0) {
      Say(absl::StrCat("waiting for ", WorkerName(w), ", ",
                       static_cast<int>(waited), " s"));
    }
  }
  if (KeepsWorkersWaiting()) {
    progress_ns_ = now_ns_;
  }
  // Those who wait for an absent one may send their bytes again and again.
  const int64_t begin_ns =
      missing.empty() ? std::max(progress_ns_, moved_ns_) : progress_ns_;
  // A program may do other things between its pushes.
  if (phase_ <= Phase::kTraining && (!options_.sdk_job || !missing.empty()) &&
      SecondsSince(begin_ns) > options_.worker_wait) {
    Fail(absl::UnavailableError(absl::StrCat(
        "no progress for ", static_cast<int>(options_.worker_wait), " s at ",
        sync() ? "step " : "contribution ", step_,
        missing.empty()
            ? ""
            : absl::StrCat(": waiting for ", absl::StrJoin(missing, ", ")))));
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
  if (Running() && !Finished()) {
    const absl::Status lost = tracker_.Check(now_ns_, reached_ns_);
    if (absl::IsPermissionDenied(lost)) {
      Fail(lost);
    } else if (!lost.ok()) {
      // What the other shards hold is of no more use.
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
