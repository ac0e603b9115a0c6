#include "server/chief/job_state.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/exit_code.h"
#include "common/base/plant.h"
#include "common/base/status.h"
#include "server/chief/state/reports.h"

namespace weir {
namespace {

constexpr int64_t kPingNs = 1'000'000'000;
constexpr uint32_t kRegisterRetryMs = 100;

RegisterReply WaitReply(std::string reason) {
  RegisterReply reply;
  reply.mutable_wait()->set_retry_ms(kRegisterRetryMs);
  reply.mutable_wait()->set_reason(std::move(reason));
  return reply;
}

}  // namespace

JobState::JobState(Options options)
    : facts_(std::move(options)),
      start_(&facts_),
      absence_(&facts_),
      round_(&facts_),
      checkpoints_(&facts_, &absence_),
      end_(&facts_) {}

std::vector<Action> JobState::TakeActions() {
  Advance();
  // I3: nobody carries out what comes behind Finish.
  if (std::exchange(over_taken_, over())) {
    facts_.actions.clear();
  }
  return std::exchange(facts_.actions, {});
}

// ----------------------------------------------------------------- the phases

void JobState::Start() {
  if (facts_.options.done_job.has_value()) {
    end_.BeginDone(*facts_.options.done_job);
  }
  facts_.AskAll();
}

void JobState::RequestStop(const std::string& reason) {
  if (facts_.stop.has_value()) {
    return;
  }
  facts_.stop = reason;
  facts_.stop_ns = facts_.now_ns();
  checkpoints_.Hurry();
  if (facts_.phase < Phase::kTraining) {
    StopAtStart();
  } else if (facts_.phase == Phase::kTraining) {
    facts_.Say(reason, ": writing a checkpoint, then stopping");
  } else {
    end_.OnStop();
  }
}

void JobState::Advance() {
  if (facts_.phase == Phase::kStarting) {
    AdvanceStart();
  }
  facts_.tracker.Look(facts_.now_ns());
  if (facts_.Running() && !facts_.Finished()) {  // I4: a lost shard is no loss
    const absl::Status lost =
        facts_.tracker.Check(facts_.now_ns(), facts_.reached_ns);
    if (absl::IsPermissionDenied(lost)) {
      end_.Fail(lost);
    } else if (!lost.ok()) {
      // The job goes back to its last checkpoint, so what the other shards
      // hold is of no more use: Shutdown makes their tasks start again.
      end_.Begin(lost, true);
    }
  }
  if (facts_.phase >= Phase::kTraining && facts_.phase <= Phase::kEvaluating) {
    facts_.Count();
    round_.Advance();
    if (facts_.train_log.has_value()) {
      for (std::string& line :
           facts_.train_log->Advance(facts_.step, facts_.now_ns())) {
        facts_.AddLine(std::move(line));
      }
    }
    // Last: progress and rounds decide what a checkpoint may do now.
    AdvanceCheckpoints();
  }
  end_.Advance();
}

void JobState::AdvanceCheckpoints() {
  absl::Status status = checkpoints_.TakeOutcome();
  if (facts_.phase == Phase::kTraining && facts_.Complete() &&
      !checkpoints_.finished()) {
    facts_.Enter(Phase::kLast);
    checkpoints_.Hurry();
  }
  if (facts_.phase == Phase::kLast) {
    end_.LogLast();  // first: DONE comes after the last line of train.jsonl
  }
  if (status.ok() && facts_.phase <= Phase::kLast && !checkpoints_.finished()) {
    status = checkpoints_.Advance();
  }
  if (absl::IsCancelled(status)) {
    end_.Begin(status, true);  // a stop that got no checkpoint
  } else if (!status.ok()) {
    end_.Fail(status);
  } else if (checkpoints_.finished() && facts_.phase == Phase::kLast) {
    end_.WriteDone();  // I5: what tells the workers waits for its answer
  } else if (checkpoints_.finished() && facts_.phase == Phase::kTraining) {
    end_.Begin(absl::CancelledError(absl::StrCat(
                   *facts_.stop, ": stopped after ", facts_.checkpoint)),
               true);
  }
}

void JobState::OnTick() {
  if (facts_.phase == Phase::kStarting) {
    TickStart();
  } else if (facts_.Running()) {
    TickRunning();
  }
  end_.Tick();
}

void JobState::Watch() {
  const absl::Status status = absence_.Watch(
      checkpoints_.hold_sent(), checkpoints_.KeepsWorkersWaiting());
  if (!status.ok()) {
    end_.Fail(status);
  }
}

void JobState::TickRunning() {
  for (int s = 0; s < facts_.tracker.count(); ++s) {
    facts_.AskHelloIfDue(s, kPingNs);
  }
  AskForReports();
  for (const uint64_t stream :
       facts_.roster.DropSilent(facts_.lost_after_ns, facts_.now_ns())) {
    facts_.Do(EndStream{
        stream, absl::DeadlineExceededError("no heartbeat: register again")});
  }
  checkpoints_.Tick();
  Watch();
}

// ----------------------------------------------------------------- the shards

void JobState::OnHello(int shard, const absl::StatusOr<HelloReply>& reply) {
  facts_.tracker.Answered(shard, reply, facts_.now_ns());
  // A ps of another release, or of another job.
  if (absl::IsInvalidArgument(reply.status()) ||
      absl::IsUnauthenticated(reply.status())) {
    end_.Fail(Annotate(reply.status(), facts_.tracker.Name(shard)));
  }
  // A ps that got SIGTERM serves on for a while, so that there is time for a
  // checkpoint. In a later phase the job ends anyway.
  if (reply.ok() && reply->leaving() && facts_.phase <= Phase::kTraining) {
    RequestStop(absl::StrCat(facts_.tracker.Name(shard), " was asked to end"));
  }
  if (reply.ok() && facts_.Running()) {
    round_.OnHello(shard);
  }
}

void JobState::OnSlotsSet(int shard, const absl::Status& status) {
  if (!facts_.Running()) {
    return;  // the round was asked for by a job that has ended meanwhile
  }
  const absl::Status error = round_.OnSet(shard, status);
  if (!error.ok()) {
    // I6: PERMISSION_DENIED means that another chief has granted slots.
    end_.Fail(error);
  }
}

void JobState::OnWritten(int shard, const std::string& name,
                         const absl::StatusOr<ShardFile>& file) {
  absl::StatusOr<ShardFile> named = file;
  if (!file.ok()) {
    named = Annotate(file.status(), facts_.tracker.Name(shard));
  }
  // I6: the shard is in another history, whose chief took it. Any other error
  // is one of this checkpoint only.
  if (absl::IsPermissionDenied(named.status())) {
    end_.Fail(named.status());
  }
  if (!end_.superseded()) {
    checkpoint().OnWritten(shard, name, named);
  }
}

// ---------------------------------------------------------------- the workers

Grant JobState::MakeGrant(int slot) const {
  const Declaration& held = facts_.job->held();
  const Roster::Worker& worker = facts_.roster.worker(slot);
  Grant grant;
  *grant.mutable_sender() = facts_.ChiefSender();
  grant.mutable_sender()->set_slot(static_cast<uint32_t>(slot));
  grant.mutable_sender()->set_generation(worker.generation);
  const Capability capability =
      facts_.CapabilityFor(grant.sender().slot(), worker.generation);
  grant.mutable_sender()->set_capability_high(capability.high);
  grant.mutable_sender()->set_capability_low(capability.low);
  for (const std::string& address : facts_.options.ps_addresses) {
    grant.add_ps_address(address);
  }
  grant.set_slot_count(static_cast<uint32_t>(facts_.options.worker_count));
  grant.set_contributions_per_step(facts_.job->per_step());
  grant.set_contribution_count(facts_.job->contribution_count());
  *grant.mutable_applied_range() = held.applied_range();
  *grant.mutable_deal() = held.deal();
  grant.set_next_sequence(worker.next_sequence);
  grant.set_base_version(held.base_version());
  grant.set_pushes_before(facts_.job->PushesBefore(slot));
  return grant;
}

absl::StatusOr<RegisterReply> JobState::OnRegister(
    const RegisterRequest& request) {
  if (end_.superseded()) {
    return end_.Superseded();
  }
  if (facts_.phase >= Phase::kEnding) {
    if (Planted("end.forgets_latecomers")) {
      return absl::FailedPreconditionError("the job is over");
    }
    return end_.AnswerLate(request, end_.status());
  }
  WEIR_RETURN_IF_ERROR(facts_.job->Check(request));
  // From here on the worker is owed an answer at the end, granted or not.
  const int slot = static_cast<int>(request.rank());
  facts_.roster.mutable_worker(slot)->asked = true;
  if (facts_.phase == Phase::kStarting) {
    Advance();
    if (const auto values = AskForValues(request); values.has_value()) {
      return *values;
    }
    return WaitReply(start_.Describe());
  }
  if (facts_.job->workers_decide() && facts_.phase > Phase::kTraining) {
    // Every worker has finished, and hears of it when their work is safe.
    return WaitReply("waiting for the last checkpoint");
  }
  if (facts_.phase == Phase::kReady) {
    const absl::Status status = EnterTraining(request.sample_count());
    if (!status.ok()) {
      end_.Fail(status);
      return status;
    }
  }
  if (std::exchange(length_guessed_, false)) {
    WEIR_RETURN_IF_ERROR(facts_.job->ReadLength(request.sample_count()));
  }
  // A process that slept through a restore must not take the slot from the one
  // that was started for it.
  const uint64_t history = facts_.job->held().history();
  if (request.held_history() != 0 && request.held_history() != history) {
    return absl::FailedPreconditionError(
        "the job was restored under another history; start this task again");
  }
  if (absence_.IsTooLateToTake(request)) {
    return absl::PermissionDeniedError(
        absl::StrCat(facts_.WorkerName(slot), " is back"));
  }
  uint64_t ended = 0;
  const absl::StatusOr<bool> granted = facts_.roster.Register(
      request, request.held_history() == history,
      facts_.tracker.NextSequenceMin(slot), facts_.now_ns(), &ended);
  if (ended != 0) {
    facts_.Do(EndStream{
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
    facts_.train_log->AddCounts(progress);
    facts_.AddHistograms(progress);
  }
  // The contributions were done one after the other since the heartbeat
  // before, so their times are spread evenly over it.
  const int64_t since_ns = facts_.roster.worker(slot).heard_before_ns;
  int first = repeated;
  if (facts_.job->sync() && !heard) {
    // Marks may say that a contribution is done before its report is here. In
    // sync the log tells repeats apart by their number, and lacks a line
    // without this report.
    first = 0;
  }
  const uint32_t bad_max = facts_.options.spec.limits().max_bad_contributions();
  for (int i = first; i < progress.report_size(); ++i) {
    const ContributionReport& report = progress.report(i);
    facts_.train_log->AddContribution(
        report, since_ns + (facts_.now_ns() - since_ns) * (i + 1) /
                               progress.report_size());
    if (report.bad() && ++bad_count_ > bad_max) {
      return absl::OutOfRangeError(absl::StrCat(
          facts_.WorkerName(slot), ", contribution ", report.contribution(),
          ": NaN or Inf in the gradient of '", report.bad_variable(), "'; ",
          bad_count_, " bad contributions, limits.max_bad_contributions is ",
          bad_max));
    }
  }
  if (progress.error().empty()) {
    return absl::OkStatus();
  }
  const absl::Status error(
      static_cast<absl::StatusCode>(progress.error_code()),
      absl::StrCat(facts_.WorkerName(slot), ": ", progress.error()));
  // Only a permanent error of the worker's own is one of the job. A worker that
  // was replaced, lost a peer or got a signal has or gets a successor.
  const int exit_code = ExitCodeFor(error);
  if (exit_code > 0 && exit_code < 128 && exit_code != kExitReplaced) {
    return error;
  }
  facts_.Warn(std::string(error.message()));
  return absl::OkStatus();
}

bool JobState::Hear(uint64_t stream, const Progress& progress) {
  if (progress.message_number() == 0) {
    return false;
  }
  Roster::Worker* const worker =
      facts_.roster.mutable_worker(static_cast<int>(progress.slot()));
  // The worker sends a message again when its stream broke before the
  // acknowledgement, which says nothing of whether the message arrived.
  const bool heard = progress.message_number() <= worker->message_number;
  if (!heard) {
    worker->message_number = progress.message_number();
  }
  Command command;
  command.set_heard(worker->message_number);
  facts_.Do(SendCommand{stream, command});
  return heard;
}

void JobState::Greet(uint64_t stream) {
  Command command;
  if (facts_.phase >= Phase::kEnding) {
    command = end_.StopCommand();
  } else if (checkpoints_.hold_sent()) {
    command.set_hold(true);
  } else {
    command.set_release(true);
  }
  facts_.Do(SendCommand{stream, command});
}

bool JobState::HasFinished(uint32_t slot) const {
  return facts_.job->workers_decide() &&
         slot < static_cast<uint32_t>(facts_.roster.count()) &&
         facts_.roster.worker(static_cast<int>(slot)).out_of_work;
}

absl::Status JobState::OnProgress(uint64_t stream, const Progress& progress) {
  if (end_.superseded()) {
    return end_.Superseded();
  }
  if (Capability{progress.capability_high(), progress.capability_low()} !=
      facts_.CapabilityFor(progress.slot(), progress.generation())) {
    // Not PERMISSION_DENIED, which would end a worker whose grant is of the
    // history before: it registers again.
    return absl::UnavailableError(
        absl::StrCat("this heartbeat does not hold the grant of worker ",
                     progress.slot(), ": register"));
  }
  WEIR_RETURN_IF_ERROR(CheckReports(progress, facts_.job->contribution_count(),
                                    facts_.job->held().variable_size()));
  const bool had_finished = HasFinished(progress.slot());
  bool fresh = false;
  uint64_t ended = 0;
  int repeated = 0;
  WEIR_RETURN_IF_ERROR(facts_.roster.OnProgress(
      stream, progress, facts_.now_ns(), &fresh, &ended, &repeated));
  if (ended != 0) {
    facts_.Do(EndStream{ended, absl::CancelledError("a newer stream is open")});
  }
  const int slot = static_cast<int>(progress.slot());
  if (fresh) {
    Greet(stream);
  }
  if (HasFinished(progress.slot()) && !had_finished) {
    facts_.Say(facts_.WorkerName(slot), " has finished");
    facts_.AskAll();  // the shards know whether the program retired its slot
  }
  Roster::Worker* const worker = facts_.roster.mutable_worker(slot);
  if (progress.bytes_moved() > worker->bytes_moved) {
    worker->bytes_moved = progress.bytes_moved();
    facts_.moved_ns = facts_.now_ns();
  }
  const bool heard = Hear(stream, progress);
  if (!heard) {
    facts_.reporter.AddProgress(progress, facts_.now_ns());
  }
  // Reports are taken while the job ends, too: a worker's last ones follow the
  // Stop that it heard.
  if (!facts_.train_log.has_value() || facts_.phase > Phase::kEnding) {
    return absl::OkStatus();
  }
  if (facts_.job->workers_decide()) {
    // A program reports metrics alone, and fails by itself.
    if (!heard) {
      facts_.train_log->AddCounts(progress);
    }
  } else {
    const absl::Status status = TakeReports(slot, progress, repeated, heard);
    if (!status.ok()) {
      end_.Fail(status);
    } else if (facts_.job->held().update().has_bounded_staleness()) {
      // A slot without work must not hold the others back by its clock.
      facts_.roster.SetRetired(slot, progress.out_of_work());
    }
  }
  return absl::OkStatus();
}

void JobState::OnStreamLost(uint64_t stream) {
  const int slot = facts_.roster.OnStreamLost(stream, facts_.now_ns());
  if (slot < 0 || !facts_.Running()) {
    return;
  }
  facts_.Warn(facts_.WorkerName(slot), " is gone");
}

}  // namespace weir
