// JobState of jobs that their workers bring: programs of the SDK.
// See "Jobs that their workers bring" in docs/design_notes.md.
#include <algorithm>

#include "server/chief/job_state.h"

namespace weir {

std::optional<RegisterReply> JobState::AskForValues(
    const RegisterRequest& request) {
  if (!options_.sdk_job || request.rank() != 0 ||
      start_.state() != StartSequence::State::kAssigning) {
    return std::nullopt;
  }
  // The chief may have been restarted while worker 0 assigned, and then has
  // declared again: values count only for the history that they were sent to.
  if (request.assigned_history() == start_.declaration().history()) {
    start_.OnValuesAssigned();
    Advance();
    return std::nullopt;
  }
  RegisterReply reply;
  *reply.mutable_assign() = ChiefSender();
  return reply;
}

uint64_t JobState::PushesBefore(int slot) const {
  const Declaration& declaration = start_.declaration();
  return slot < declaration.pushes_before_size()
             ? declaration.pushes_before(slot)
             : 0;
}

void JobState::AdvanceSdkProgress() {
  uint64_t done = 0;
  uint64_t slowest = UINT64_MAX;  // over the workers that go on
  uint64_t fastest = 0;
  for (int w = 0; w < roster_.count(); ++w) {
    Roster::Worker* const worker = roster_.mutable_worker(w);
    const SlotMarks marks = tracker_.Marks(w);
    worker->next_sequence =
        std::max(worker->next_sequence, marks.next_sequence());
    // Only the shards know: a program retires its slot there by itself.
    worker->retired = worker->retired || marks.RetiredIn(worker->generation);
    done += worker->next_sequence;
    fastest = std::max(fastest, worker->next_sequence);
    if (!worker->retired) {
      slowest = std::min(slowest, worker->next_sequence);
    }
  }
  if (done > contributions_done_) {
    contributions_done_ = done;
    progress_ns_ = reached_ns_ = now_ns_;
  }
  const bool all_done = slowest == UINT64_MAX;
  uint64_t steps = done;
  if (sync()) {
    // Retired slots are passed over, so the slowest of the others decides;
    // without others the last step is the one that the fastest got to.
    steps = all_done ? fastest : slowest;
  }
  step_ = start_.declaration().base_version() + steps;
  step_count_ = all_done ? step_ : kEndless;
}

}  // namespace weir
