#include "server/chief/state/job_end.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/exit_code.h"
#include "common/base/plant.h"

namespace weir {
namespace {

using Phase = JobFacts::Phase;

constexpr int64_t kRetryDoneNs = 1'000'000'000;
constexpr int64_t kAskAgainNs = 100'000'000;
constexpr int64_t kLookAgainNs = 1'000'000'000;
// A place that does not say for so long whether DONE is there keeps no ps from
// its end: that there is another chief is rare.
constexpr int64_t kLookMaxNs = 5'000'000'000;
// Then it is told so.
constexpr int64_t kTellNs = 2'000'000'000;
// I7. Whoever did not hear the answer to Register asks again within so long.
constexpr int64_t kAsksAgainNs = 2'000'000'000;
// For the reports of the last contributions, which are on their way: a worker
// sends them within a heartbeat, unless it died.
constexpr double kLastReportsWait = 2.0;  // s
// For the evaluator's line on the last checkpoint, in seconds, where the job
// file does not say.
constexpr double kEvaluatorWait = 60.0;

}  // namespace

// ------------------------------------------------------------------ how it
// ends

void JobEnd::Begin(absl::Status status, bool shutdown_ps) {
  if (facts_.phase >= Phase::kEnding) {
    return;  // I1: the first end is the one that counts
  }
  status_ = std::move(status);
  if (status_.ok()) {
    // A worker that left before comes again, and is to hear that the job is
    // done: otherwise it would wait for a chief that is gone.
    for (int w = 0; w < facts_.roster.count(); ++w) {
      facts_.roster.mutable_worker(w)->told = false;
    }
  }
  shutdown_ps_ = shutdown_ps && facts_.phase >= Phase::kReady;
  hello_ticket_.assign(facts_.tracker.count(), 0);
  asked_.assign(facts_.tracker.count(), false);
  shut_down_.assign(facts_.tracker.count(), !shutdown_ps_);
  facts_.Enter(Phase::kEnding);
  facts_.Broadcast(StopCommand());
}

void JobEnd::BeginDone(const std::string& job) {
  done_job_ = job;
  for (int w = 0; w < facts_.roster.count(); ++w) {
    facts_.roster.mutable_worker(w)->asked = true;  // each of them may come
  }
  begun_ns_ = facts_.now_ns();
  hello_ticket_.assign(facts_.tracker.count(), 1);  // any answer
  asked_.assign(facts_.tracker.count(), false);
  shut_down_.assign(facts_.tracker.count(), false);
  facts_.Enter(Phase::kEnding);
}

void JobEnd::Fail(const absl::Status& status) {
  if (facts_.Finished() && facts_.phase < Phase::kEnding) {
    // I2: the last checkpoint holds all, so no error makes the end a bad one.
    facts_.Warn(status.message(), "; the job is done all the same");
    return;
  }
  if (facts_.options.finished_job.has_value() &&
      facts_.phase < Phase::kTraining && IsTransientExit(ExitCodeFor(status))) {
    facts_.Say(status.message(),
               "; the job was done before, and nobody goes on with it");
    BeginDone(*facts_.options.finished_job);
    return;
  }
  if (absl::IsPermissionDenied(status) && !Planted("chief.fenced_ends_job")) {
    GiveWay(status);
    return;
  }
  // After a permanent error the values are of no more use; after a transient
  // one another chief may go on with them.
  Begin(status, !IsTransientExit(ExitCodeFor(status)) &&
                    facts_.phase >= Phase::kTraining);
}

void JobEnd::BeginAnew(const absl::Status& status) {
  Begin(status, false);
  anew_ = true;
  shutdown_ps_ = true;
  for (int s = 0; s < facts_.tracker.count(); ++s) {
    shut_down_[s] = facts_.tracker.hello(s).state() == EMPTY;
  }
}

void JobEnd::GiveWay(const absl::Status& why) {
  if (facts_.phase >= Phase::kEnding) {
    return;
  }
  superseded_ = true;
  status_ = absl::PermissionDeniedError(absl::StrCat(
      "another chief has taken over, this one ends and leaves the job to it: ",
      why.message()));
  // I4: no Stop and no Shutdown. The workers find the other chief, or give up
  // with a code for another try.
  for (const uint64_t stream : facts_.roster.streams()) {
    facts_.Do(EndStream{stream, Superseded()});
  }
  Finish();
}

absl::Status JobEnd::Superseded() const {
  return absl::UnavailableError(
      absl::StrCat("this chief ends: ", status_.message()));
}

void JobEnd::OnStop() {
  if (facts_.phase == Phase::kEvaluating) {
    facts_.Say(*facts_.stop, ": not waiting for the evaluator any longer");
    Begin(absl::OkStatus(), true);
  } else if (done_before() && facts_.phase < Phase::kOver) {
    Finish();
  }
}

void JobEnd::Finish() {
  facts_.Enter(Phase::kOver);
  facts_.Do(weir::Finish{status_});  // I1: no phase follows
}

// --------------------------------------------------------------- DONE

void JobEnd::OnTraining() {
  // Maybe nobody comes who has more to do: then the job is still done.
  facts_.done_may_stay = facts_.had_finished || facts_.Complete();
  if (!facts_.done_may_stay) {
    facts_.Do(RemoveDone{});
  }
}

void JobEnd::LogLast() {
  if (last_logged_ || (!facts_.roster.AllOutOfWork() &&
                       facts_.SecondsInPhase() <= kLastReportsWait)) {
    return;
  }
  last_logged_ = true;
  facts_.EndCurve(facts_.step);
}

bool JobEnd::WaitsForEvaluator() const {
  return facts_.options.evaluator_expected &&
         facts_.options.spec.has_evaluation();
}

void JobEnd::WriteDone() {
  // Whoever finds DONE may expect the whole curve.
  const bool logged = last_logged_ || !facts_.train_log.has_value();
  if (done_asked_ || !logged || facts_.now_ns() < retry_ns_) {
    return;
  }
  // I3: workers hear Stop from Begin alone; AnswerLate tells SDK workers.
  done_asked_ = true;
  facts_.Do(weir::WriteDone{facts_.checkpoint, WaitsForEvaluator()});
}

void JobEnd::OnDoneWritten(const absl::Status& status) {
  if (facts_.phase != Phase::kLast) {
    return;
  }
  done_asked_ = false;
  // I2: the job is done and only has to say so, thus it tries until it can.
  if (!status.ok()) {
    retry_ns_ = facts_.now_ns() + kRetryDoneNs;
    facts_.Warn("DONE cannot be written, trying again: ", status.message());
    return;
  }
  facts_.Enter(Phase::kEvaluating);
  if (!WaitsForEvaluator()) {
    Begin(absl::OkStatus(), true);
  }
}

void JobEnd::OnEvaluated() {
  if (facts_.phase == Phase::kEvaluating) {
    Begin(absl::OkStatus(), true);
  }
}

// --------------------------------------------------------------- who is told

Command JobEnd::StopCommand() const {
  Command command;
  command.mutable_stop()->set_code(static_cast<uint32_t>(status_.code()));
  command.mutable_stop()->set_reason(std::string(status_.message()));
  return command;
}

RegisterReply JobEnd::AnswerLate(const RegisterRequest& request,
                                 const absl::Status& end) {
  // `over` tells it all that a Stop would, so nobody waits for it any more.
  if (request.rank() < static_cast<uint32_t>(facts_.roster.count())) {
    facts_.roster.mutable_worker(static_cast<int>(request.rank()))->told = true;
  }
  answered_ns_ = facts_.now_ns();
  RegisterReply reply;
  reply.mutable_over()->set_code(static_cast<uint32_t>(end.code()));
  reply.mutable_over()->set_reason(std::string(end.message()));
  return reply;
}

bool JobEnd::WorkersAreGone() const {
  if (facts_.roster.AnyConnected()) {
    return false;
  }
  if (Planted("end.forgets_latecomers") || facts_.roster.AllTold()) {
    return true;
  }
  // After an error workers end with 138, whether they hear of it or not.
  return !status_.ok() && facts_.SecondsInPhase() > facts_.options.fail_wait;
}

bool JobEnd::MayBeAskedAgain() const {
  return status_.ok() && answered_ns_ != 0 &&
         facts_.now_ns() - answered_ns_ < kAsksAgainNs;
}

bool JobEnd::TimeIsUp(double seconds) const {
  const int64_t look_ns =
      facts_.now_ns() < look_until_ns_ ? kLookMaxNs + kTellNs : 0;
  // Tasks of a job that was done before may only just be starting.
  if (done_before()) {
    return facts_.now_ns() - begun_ns_ > facts_.lost_after_ns + look_ns;
  }
  return facts_.SecondsInPhase() > seconds + static_cast<double>(look_ns) / 1e9;
}

// --------------------------------------------------------------- the ps

void JobEnd::ShutDown(int shard, const Sender& sender) {
  asked_[shard] = true;
  ShutdownRequest request;
  *request.mutable_sender() = sender;
  request.set_chief_secret(facts_.options.chief_secret);
  if (IsTransientExit(ExitCodeFor(status_))) {
    // A shard was lost, or the job was stopped before its end: whoever starts
    // tasks again starts all ps.
    request.set_code(static_cast<uint32_t>(status_.code()));
    request.set_reason(std::string(status_.message()));
  }
  facts_.Do(ShardCall{shard, request});
}

Sender JobEnd::SenderFor(int shard) const {
  const HelloReply& hello = facts_.tracker.hello(shard);
  Sender sender;  // an EMPTY ps takes Shutdown without one
  if (hello.state() != EMPTY) {
    sender.set_job(hello.job());
    sender.set_history(hello.history());
    sender.set_layout_fingerprint(hello.layout_fingerprint());
  }
  return sender;
}

bool JobEnd::SeeksPs() const {
  if (done_before()) {
    return facts_.phase < Phase::kOver;
  }
  return facts_.phase == Phase::kShutdown && shutdown_ps_ && status_.ok() &&
         !Planted("end.forgets_lost_ps");
}

bool JobEnd::IsOurs(const HelloReply& hello) const {
  return done_before() ? hello.job() == *done_job_
                       : hello.history() == facts_.ChiefSender().history();
}

bool JobEnd::HasAnswered(int shard) const {
  return !asked_[shard] && !shut_down_[shard] && hello_ticket_[shard] != 0 &&
         facts_.tracker.Fresh(shard, hello_ticket_[shard]);
}

void JobEnd::ShutDownThoseThatAnswer(bool done_seen) {
  const int64_t now_ns = facts_.now_ns();
  const bool done_is_there =
      done_seen ||
      (look_since_ns_ != 0 && now_ns - look_since_ns_ > kLookMaxNs);
  bool waits = false;  // for a look
  for (int s = 0; s < facts_.tracker.count(); ++s) {
    if (!HasAnswered(s)) {
      continue;
    }
    const HelloReply& hello = facts_.tracker.hello(s);
    if (hello.state() != EMPTY && !IsOurs(hello)) {
      shut_down_[s] = true;  // I5: it was given to another job meanwhile
    } else if (NeedsDone(hello) && !done_is_there) {
      waits = true;
    } else {
      ShutDown(s, SenderFor(s));
    }
  }
  if (!waits) {
    if (std::exchange(look_since_ns_, 0) != 0) {
      look_until_ns_ = now_ns + kTellNs;
    }
    return;
  }
  if (look_since_ns_ == 0) {
    look_since_ns_ = now_ns;
    look_until_ns_ = now_ns + kLookMaxNs + kTellNs;
  }
  if (!look_asked_ && now_ns >= look_ns_) {
    look_asked_ = true;
    facts_.Do(LookForDone{});
  }
}

void JobEnd::OnLooked(const absl::Status& there) {
  look_asked_ = false;
  if (!SeeksPs()) {
    return;
  }
  if (there.ok()) {
    ShutDownThoseThatAnswer(/*done_seen=*/true);
  } else if (absl::IsNotFound(there)) {  // I6
    facts_.Say(
        "DONE was removed: another chief goes on with the job, and this one "
        "ends no ps that is there for it");
    for (int s = 0; s < facts_.tracker.count(); ++s) {
      shut_down_[s] = shut_down_[s] ||
                      (HasAnswered(s) && NeedsDone(facts_.tracker.hello(s)));
    }
  } else {
    look_ns_ = facts_.now_ns() + kLookAgainNs;
    facts_.Warn("looking for DONE: ", there.message());
  }
}

void JobEnd::OnShutdown(int shard, const absl::Status& status) {
  if (shut_down_.empty()) {
    return;
  }
  asked_[shard] = false;
  hello_ticket_[shard] = 0;
  if (std::count(asked_.begin(), asked_.end(), true) == 0 &&
      look_since_ns_ == 0) {
    look_until_ns_ = 0;
  }
  // I6. It may only just have started: Tick asks it again.
  shut_down_[shard] =
      status.ok() || absl::IsPermissionDenied(status) || !SeeksPs();
}

void JobEnd::Tick() {
  if (!SeeksPs()) {
    return;
  }
  for (int s = 0; s < facts_.tracker.count(); ++s) {
    if (!asked_[s] && !shut_down_[s] && !HasAnswered(s) &&
        facts_.tracker.Due(s, kAskAgainNs, facts_.now_ns())) {
      hello_ticket_[s] = facts_.AskHello(s);
    }
  }
}

void JobEnd::Advance() {
  const JobOptions& options = facts_.options;
  if (facts_.phase == Phase::kEvaluating) {
    double wait = kEvaluatorWait;
    if (options.spec.evaluation().has_wait_seconds()) {
      wait = options.spec.evaluation().wait_seconds();
    }
    if (facts_.SecondsInPhase() > wait) {
      facts_.Warn("the evaluator has no line on ", facts_.checkpoint, " after ",
                  wait, " s");
      Begin(absl::OkStatus(), true);
    }
  }
  if (SeeksPs()) {
    ShutDownThoseThatAnswer(/*done_seen=*/false);
  }
  double end_wait = options.end_wait;
  if (!status_.ok() && !facts_.stop.has_value()) {
    // Workers end with the same code whether they hear of the error or not.
    end_wait = std::min(options.fail_wait, end_wait);
  }
  if (facts_.phase == Phase::kEnding &&
      (WorkersAreGone() || TimeIsUp(end_wait))) {
    if (facts_.stop.has_value() && facts_.checkpoint_step.has_value()) {
      // The last reports are in: no line may be missing before --resume.
      facts_.EndCurve(*facts_.checkpoint_step);
    }
    // Only now: a ps that ends takes with it what its workers still wait for.
    facts_.Enter(Phase::kShutdown);
    for (int s = 0; shutdown_ps_ && s < facts_.tracker.count(); ++s) {
      if (!shut_down_[s]) {
        ShutDown(s, anew_ ? SenderFor(s) : facts_.ChiefSender());
      }
    }
  }
  double shutdown_wait = options.shutdown_wait;
  if (SeeksPs()) {
    shutdown_wait = std::max(shutdown_wait,
                             static_cast<double>(facts_.lost_after_ns) * 1e-9);
  }
  if (facts_.phase == Phase::kShutdown &&
      (std::count(shut_down_.begin(), shut_down_.end(), false) == 0 ||
       TimeIsUp(shutdown_wait)) &&
      (!MayBeAskedAgain() || TimeIsUp(options.end_wait))) {
    Finish();
  }
}

}  // namespace weir
