// JobState's first part: from the first Hello to the first contribution.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "server/chief/job_state.h"

namespace weir {
namespace {

constexpr int64_t kStartHelloNs = 500'000'000;

}  // namespace

void JobState::TickStart() {
  if (start_.state() == StartSequence::State::kNeedsJob ||
      start_.state() == StartSequence::State::kAssigning) {
    Watch();
  }
  if (start_.state() != StartSequence::State::kHello) {
    return;
  }
  for (int s = 0; s < facts_.tracker.count(); ++s) {
    // Also those that have answered: one that is to end waits for a chief that
    // asks.
    facts_.AskHelloIfDue(s, kStartHelloNs);
    if (facts_.tracker.Fresh(s, 1)) {
      continue;
    }
    // A whole cluster starts in any order, so a ps may be late; but a wrong
    // address in TF_CONFIG would have the others wait for ever.
    const double waited = facts_.SecondsInPhase();
    const std::string name = facts_.tracker.Name(s);
    if (waited > facts_.options.start_wait) {
      end_.Fail(absl::UnavailableError(
          absl::StrCat(name, " did not answer for ", static_cast<int>(waited),
                       " s: ", facts_.tracker.last_error(s).message())));
      return;
    }
    if (facts_.TimeToSay(name, 5.0)) {
      facts_.Say("waiting for ", name, ", ", static_cast<int>(waited), " s");
    }
  }
}

void JobState::AdvanceStart() {
  // I1: StartSequence decides once what to do with the shards, and it is told
  // of each kind of event only in the state that waits for it.
  if (start_.state() == StartSequence::State::kHello &&
      facts_.tracker.AllAnswered()) {
    start_.OnHellos(facts_.tracker.hellos());
    facts_.progress_ns = facts_.now_ns();  // until here the ps were waited for
  }
  if (facts_.stop.has_value() && !start_.ShardsMayHoldWork() &&
      start_.state() != StartSequence::State::kFailed) {
    StopAtStart();
    return;
  }
  start_.Load();
  if (start_.state() == StartSequence::State::kFailed) {
    if (start_.begins_anew()) {
      end_.BeginAnew(start_.status());
    } else {
      end_.Fail(start_.status());
    }
    return;
  }
  if (start_.state() != StartSequence::State::kReady) {
    return;
  }
  for (int s = 0; s < facts_.tracker.count(); ++s) {
    facts_.tracker.SetIncarnation(s, start_.incarnations()[s]);
  }
  facts_.tracker.Expect(facts_.job->held().history(), facts_.now_ns());
  // I2: generations that an earlier chief granted are on the shards. What was
  // done before this chief has been reported to the one before it.
  for (int w = 0; w < facts_.roster.count(); ++w) {
    const SlotMarks marks = facts_.tracker.Marks(w);
    facts_.roster.SetGeneration(w, marks.generation());
    facts_.roster.mutable_worker(w)->next_sequence = marks.next_sequence();
    facts_.roster.mutable_worker(w)->reported = marks.next_sequence();
  }
  facts_.Enter(Phase::kReady);
  facts_.progress_ns = facts_.now_ns();
  if (!start_.adopted()) {
    return;
  }
  facts_.Say("took over the shards of a job under way");
  // Of the first nobody comes who would begin it.
  if (AllHaveFinished() || facts_.stop.has_value()) {
    EnterTrainingAlone();
  }
}

void JobState::StopAtStart() {
  const std::string& reason = *facts_.stop;
  if (!start_.ShardsMayHoldWork()) {
    end_.Begin(
        absl::CancelledError(absl::StrCat(reason, ": stopped at the start")),
        true);
    return;
  }
  facts_.Say(reason,
             start_.adopted() ? ": saving what the ps hold"
                              : ": asking the ps what they hold",
             ", then stopping");
  if (facts_.phase == Phase::kReady) {
    EnterTrainingAlone();
  }
}

void JobState::EnterTrainingAlone() {
  // For a checkpoint the job need only be long enough; the first worker that
  // comes says how long it is.
  length_guessed_ = true;
  const absl::Status status = EnterTraining(JobSource::kEndless);
  if (!status.ok()) {
    end_.Fail(status);
  }
}

bool JobState::AllHaveFinished() {
  if (!facts_.job->workers_decide()) {
    return false;
  }
  bool all = true;
  for (int w = 0; w < facts_.roster.count(); ++w) {
    facts_.job->TakeMarks(w, facts_.tracker.Marks(w),
                          facts_.roster.mutable_worker(w));
    all = all && facts_.roster.worker(w).retired;
  }
  return all;
}

std::optional<RegisterReply> JobState::AskForValues(
    const RegisterRequest& request) {
  if (!facts_.job->worker_assigns() || request.rank() != 0 ||
      start_.state() != StartSequence::State::kAssigning) {
    return std::nullopt;
  }
  // The chief may have been restarted while worker 0 assigned, and then has
  // declared again: values count only for the history that they were sent to.
  if (request.assigned_history() == facts_.job->held().history()) {
    start_.OnValuesAssigned();
    Advance();
    return std::nullopt;
  }
  RegisterReply reply;
  *reply.mutable_assign() = facts_.ChiefSender();
  return reply;
}

absl::Status JobState::EnterTraining(uint64_t sample_count) {
  WEIR_RETURN_IF_ERROR(facts_.job->ReadLength(sample_count));
  facts_.Enter(Phase::kTraining);
  facts_.Count();  // the step, which the curve and the schedule begin with
  facts_.progress_ns = facts_.now_ns();
  facts_.train_log.emplace(
      facts_.job->CurveOptions(facts_.step, start_.adopted()));
  checkpoints_.BeginTraining();
  const Declaration& held = facts_.job->held();
  const std::optional<Manifest>& newest = facts_.options.newest;
  if (start_.restored()) {
    facts_.checkpoint_step = facts_.step;
    facts_.checkpoint = held.restored_from();
  } else if (start_.adopted() && newest.has_value() &&
             (newest->declaration().history() == held.history() ||
              newest->name() == held.restored_from())) {
    // Only a checkpoint of this history, or the one that it began with, says
    // how much of what these shards hold is saved.
    facts_.checkpoint_step = newest->step();
    facts_.checkpoint = newest->name();
  }
  facts_.had_finished =
      facts_.options.newest_finished && newest->name() == facts_.checkpoint;
  if (!facts_.stop.has_value()) {  // else nobody trains
    end_.OnTraining();
    facts_.cutting = true;
    facts_.Do(CutTrainLog{facts_.step});
  }
  for (const TrainLine& line : facts_.options.train_lines) {
    facts_.AddToCurve(line);
  }
  facts_.reporter.curve().Cut(static_cast<double>(facts_.step));
  std::string to;
  if (facts_.step_count != JobSource::kEndless) {
    to = absl::StrCat(" to ", facts_.step_count);
  }
  facts_.Say("training from ", facts_.job->unit(), facts_.step, to);
  return absl::OkStatus();
}

}  // namespace weir
