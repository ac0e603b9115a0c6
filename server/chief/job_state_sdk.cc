// JobState of jobs that their workers bring: programs of the SDK.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/wire/declaration_io.h"
#include "server/chief/job_state.h"

namespace weir {

absl::Status JobState::CheckBrought(const RegisterRequest& request,
                                    const std::string& who) {
  const Declaration& declaration = request.declaration();
  if (declaration.shard_count() != options_.ps_addresses.size() ||
      declaration.slot_count() != static_cast<uint32_t>(roster_.count())) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, " names ", declaration.shard_count(), " ps and ",
                     declaration.slot_count(), " workers, the chief ",
                     options_.ps_addresses.size(), " and ", roster_.count(),
                     "; compare TF_CONFIG of both tasks"));
  }
  if (declaration.job().empty() ||
      declaration.variable_size() + declaration.table_size() == 0 ||
      declaration.group_size() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, " declares job '", declaration.job(), "' with ",
        declaration.variable_size(), " tensors, ", declaration.table_size(),
        " tables and ", declaration.group_size(),
        " groups; a job has a tensor or a table, and a group"));
  }
  const Update& update = declaration.update();
  if (update.has_sync() &&
      update.sync().contributions() != declaration.slot_count()) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, ": a sync step has one push of every worker, not ",
        update.sync().contributions(), " of ", declaration.slot_count()));
  }
  const Declaration* held = nullptr;
  if (phase_ >= Phase::kReady) {
    held = &start_.declaration();
  } else if (sdk_declaration_.has_value()) {
    held = &*sdk_declaration_;
  } else {
    sdk_declaration_ = declaration;
    return absl::OkStatus();
  }
  if (held->job() != declaration.job()) {
    return absl::AlreadyExistsError(
        absl::StrCat(who, " declares job '", declaration.job(),
                     "', the chief runs '", held->job(), "'"));
  }
  const std::string difference = FirstDeclarationDifference(*held, declaration);
  if (!difference.empty()) {
    return absl::AlreadyExistsError(absl::StrCat(
        who, ": ", difference, "; every worker must declare the same"));
  }
  return absl::OkStatus();
}

std::optional<RegisterReply> JobState::AskForValues(
    const RegisterRequest& request) {
  if (!options_.sdk_job || request.rank() != 0 ||
      start_.state() != StartSequence::State::kAssigning) {
    return std::nullopt;
  }
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

void JobState::AdvanceBrought() {
  uint64_t done = 0;
  uint64_t slowest = UINT64_MAX;  // of those that go on
  uint64_t fastest = 0;
  for (int w = 0; w < roster_.count(); ++w) {
    Roster::Worker* const worker = roster_.mutable_worker(w);
    worker->next_sequence =
        std::max(worker->next_sequence, tracker_.NextSequenceMin(w));
    if (tracker_.Retired(w, worker->generation)) {
      worker->retired = true;
    }
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
  step_ = start_.declaration().base_version() + (!sync()    ? done
                                                 : all_done ? fastest
                                                            : slowest);
  step_count_ = all_done ? step_ : kEndless;
}

}  // namespace weir
