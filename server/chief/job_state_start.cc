// JobState's first part: from the first Hello to the first contribution.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "proto/job/learning_rate.h"
#include "proto/wire/declaration_io.h"
#include "server/chief/job_state.h"

namespace weir {
namespace {

constexpr int64_t kStartHelloNs = 500'000'000;

}  // namespace

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
      // A whole cluster starts in any order, so a ps may be late; but a wrong
      // address in TF_CONFIG would have the others wait for ever.
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
  // I1: StartSequence decides once what to do with the shards, and it is told
  // of each kind of event only in the state that waits for it.
  if (start_.state() == StartSequence::State::kHello &&
      tracker_.AllAnswered()) {
    start_.OnHellos(tracker_.hellos(), &actions_);
    progress_ns_ = now_ns_;  // the wait for the ps was not the workers'
  }
  if (start_.state() == StartSequence::State::kNeedsVariables &&
      !register_check_.variables().empty()) {
    start_.OnVariables(register_check_.variables(), &actions_);
  }
  if (start_.state() == StartSequence::State::kNeedsVariables &&
      register_check_.declaration().has_value()) {
    start_.OnSdkDeclaration(*register_check_.declaration(), &actions_);
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
    tracker_.SetIncarnation(s, start_.incarnations()[s]);
  }
  tracker_.Expect(declaration.history(), now_ns_);
  // I2: generations that an earlier chief granted are on the shards. What was
  // done before this chief has been reported to the one before it.
  for (int w = 0; w < roster_.count(); ++w) {
    const SlotMarks marks = tracker_.Marks(w);
    roster_.SetGeneration(w, marks.generation());
    roster_.mutable_worker(w)->next_sequence = marks.next_sequence();
    roster_.mutable_worker(w)->reported = marks.next_sequence();
  }
  register_check_.SetDeclaration(declaration);
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
    // Lines beyond are of work that a restore threw away.
    if (line.step <= step_) {
      logged = std::max(logged, line.step);
      log.base_seconds = line.seconds;
      log.base_examples = line.examples;
    }
  }
  if (sync() && start_.adopted()) {
    // Workers may still hold reports of steps that the chief before did not
    // write down, so the curve goes on behind its last line.
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
  // Fails where train.steps or epochs were lowered below the checkpoint.
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
    // The last step may lack contributions, hence the division rounds up.
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
  AdvanceProgress();  // step_, which the log and the schedule begin with
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
    // Only a checkpoint of this history, or the one that it began with, says
    // how much of what these shards hold is saved.
    checkpoint_step_ = options_.newest->step();
    checkpoint_ = options_.newest->name();
  }
  actions_.push_back(CutTrainLog{step_});
  const char* unit = "contribution ";
  if (sync()) {
    unit = "step ";
  } else if (options_.sdk_job) {
    unit = "push ";
  }
  std::string to;  // an SDK job has no length
  if (!options_.sdk_job) {
    to = absl::StrCat(" to ", step_count_);
  }
  Say(absl::StrCat("training from ", unit, step_, to));
  return absl::OkStatus();
}

}  // namespace weir
