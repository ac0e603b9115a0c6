#include "server/ps/consistency/consistency_mode.h"

#include <algorithm>

#include "common/base/status.h"

namespace weir {

Receipt MakeReceipt(const ::weir::Push& push, Receipt::Outcome outcome) {
  Receipt receipt;
  receipt.set_outcome(outcome);
  receipt.set_sequence(push.sequence());
  return receipt;
}

Receipt MakeCountedReceipt(const ::weir::Push& push, int bad_variable) {
  if (bad_variable < 0) {
    return MakeReceipt(push, Receipt::ACCEPTED);
  }
  // I3. It is settled, not refused: a client that repeated it would bring the
  // same NaN again.
  Receipt receipt = MakeReceipt(push, Receipt::LEFT_OUT);
  receipt.set_bad_variable(static_cast<uint32_t>(bad_variable));
  return receipt;
}

// I1, I2: `order_` takes the marks, each with the change that it stands for.
ConsistencyMode::ConsistencyMode(ShardContext* context)
    : context_(*context),
      order_(context->plan->contributions(),
             static_cast<uint32_t>(context->plan->slot_count()),
             context->plan->declaration().base_version()) {}

absl::StatusOr<std::optional<PulledBlock>> ConsistencyMode::Answer(
    const Block& block, const Want& want) const {
  // A version before `oldest_readable` is refused also where this block still
  // has it: its buffer may become the next sum at any moment.
  const uint64_t oldest =
      std::max(block.oldest_version(), context_.oldest_readable.load());
  WEIR_ASSIGN_OR_RETURN(const std::optional<Readable> from,
                        CanRead(block.order, oldest, want));
  if (!from.has_value()) {
    return std::nullopt;
  }
  if (*from == Readable::kPrevious) {
    return PulledBlock{block.plan.index, want.version(), false,
                       block.previous.values, block.plan.has_buffers};
  }
  return PulledBlock{block.plan.index,
                     block.order.version,
                     false,
                     block.values,
                     block.plan.has_buffers,
                     context_.plan->kind() == ConsistencyKind::kLockFree};
}

}  // namespace weir
