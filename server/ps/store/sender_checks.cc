#include "server/ps/store/sender_checks.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "proto/job/push_checks.h"
#include "server/ps/block/block_update.h"

namespace weir {

absl::Status CheckSender(const ShardPlan& plan, const Sender& sender) {
  // I1. The order matters for the message: two jobs differ in history and
  // layout as well, and the job's name says most.
  const Declaration& declaration = plan.declaration();
  if (sender.job() != declaration.job()) {
    return absl::FailedPreconditionError(
        absl::StrCat("this ps serves job '", Printable(declaration.job()),
                     "', not '", Printable(sender.job()), "'"));
  }
  if (sender.history() != declaration.history()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this ps is at history ", absl::Hex(declaration.history()), ", not ",
        absl::Hex(sender.history()), ": the job was restored or restarted"));
  }
  if (sender.layout_fingerprint() != plan.layout().fingerprint()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this ps has layout ", absl::Hex(plan.layout().fingerprint()), ", not ",
        absl::Hex(sender.layout_fingerprint()),
        ": the variables or the number of ps differ"));
  }
  return absl::OkStatus();
}

absl::Status CheckChief(const ShardPlan& plan, const Sender& sender) {
  const Declaration& declaration = plan.declaration();
  // Generation 0 is a chief. A worker that retires its own slot has one, and
  // gets FAILED_PRECONDITION below: it starts again, while a chief that was
  // replaced must end.
  if (sender.job() == declaration.job() && sender.generation() == 0 &&
      sender.history() != declaration.history()) {
    return absl::PermissionDeniedError(
        absl::StrCat("another chief made this shard, under history ",
                     absl::Hex(declaration.history()), ", not ",
                     absl::Hex(sender.history())));
  }
  return CheckSender(plan, sender);
}

absl::Status CheckGeneration(const std::vector<SlotState>& slots,
                             const Sender& sender) {
  // Readers (an evaluator, a chief) hold no slot and say generation 0.
  if (sender.generation() == 0) {
    return absl::OkStatus();
  }
  if (sender.slot() >= slots.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot ", sender.slot(), " of ", slots.size(), " slots"));
  }
  // I1: a process that was replaced, and wakes up, changes nothing.
  const uint32_t granted = slots[sender.slot()].generation;
  if (sender.generation() < granted) {
    return absl::PermissionDeniedError(
        absl::StrCat("slot ", sender.slot(), " generation ",
                     sender.generation(), " was replaced by ", granted));
  }
  // The chief tells every shard before it answers a worker, so a larger
  // generation comes from no worker of this history.
  if (sender.generation() > granted) {
    return absl::PermissionDeniedError(absl::StrCat(
        "slot ", sender.slot(), " generation ", sender.generation(),
        " was never granted here, the newest is ", granted));
  }
  const SlotState& state = slots[sender.slot()];
  if (sender.capability_high() != state.capability_high ||
      sender.capability_low() != state.capability_low) {
    return absl::PermissionDeniedError(absl::StrCat(
        "slot ", sender.slot(), " generation ", sender.generation(),
        " was granted to another process: this sender does not hold its "
        "capability"));
  }
  return absl::OkStatus();
}

absl::Status CheckPusher(const std::vector<SlotState>& slots,
                         const std::atomic<bool>& active,
                         const Sender& sender) {
  WEIR_RETURN_IF_ERROR(CheckGeneration(slots, sender));
  if (!active) {
    return absl::FailedPreconditionError(
        "nobody may push yet: the chief has set no slots");
  }
  if (sender.generation() == 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        "slot ", sender.slot(), " generation 0 may pull, not push"));
  }
  return absl::OkStatus();
}

absl::Status CheckPush(const ShardPlan& plan, const GradientChunk& chunk,
                       const Payload& payload) {
  const uint64_t blocks = plan.blocks().size();
  // 64 bits: block + count of two 32-bit fields must not wrap (I2).
  const uint64_t count = std::max(chunk.block_count(), 1u);
  if (chunk.block() + count > blocks) {
    return absl::InvalidArgumentError(absl::StrCat("blocks [", chunk.block(),
                                                   ", ", chunk.block() + count,
                                                   ") of a shard of ", blocks));
  }
  // A run of blocks is a run of blocks that are left out; each block with a
  // gradient comes in a chunk of its own.
  if (!payload.empty() && count != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a payload of ", payload.bytes(), " bytes for ", count, " blocks"));
  }
  const ::weir::Push& push = chunk.push();
  WEIR_RETURN_IF_ERROR(CheckWeight(WeightOf(push)));
  const size_t variables = plan.layout().variables().size();
  for (const uint32_t variable : push.left_out()) {
    if (variable >= variables) {
      return absl::InvalidArgumentError(absl::StrCat(
          "left_out names variable ", variable, " of ", variables));
    }
  }
  for (const Hyper& hyper : push.hyper()) {
    WEIR_RETURN_IF_ERROR(CheckHyper(plan.declaration().group(), hyper));
  }
  return absl::OkStatus();
}

}  // namespace weir
