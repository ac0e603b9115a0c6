#include "server/chief/state/slot_round.h"

#include <algorithm>

#include "client/cc/transport/retry_policy.h"
#include "common/base/status.h"

namespace weir {

void SlotRound::Advance() {
  const int shards = facts_.tracker.count();
  if (facts_.roster.NeedsRound()) {
    request_.Clear();
    *request_.mutable_sender() = facts_.ChiefSender();
    for (SetSlotsRequest::Slot& slot : facts_.roster.BeginRound()) {
      const Capability capability =
          facts_.CapabilityFor(slot.slot(), slot.generation());
      slot.set_capability_high(capability.high);
      slot.set_capability_low(capability.low);
      *request_.add_slot() = slot;
    }
    calls_.resize(shards);
    tickets_.resize(shards);
    for (int s = 0; s < shards; ++s) {
      Send(s);
    }
  }
  // I1
  if (facts_.roster.in_round() && facts_.AllFresh(tickets_) &&
      std::count(calls_.begin(), calls_.end(), Call::kTaken) == shards) {
    const uint64_t unreported = facts_.roster.EndRound(
        [this](int slot) { return facts_.tracker.NextSequenceMin(slot); },
        facts_.now_ns());
    if (facts_.train_log.has_value()) {
      facts_.train_log->AddUnreported(unreported);
    }
  }
}

void SlotRound::Send(int shard) {
  calls_[shard] = Call::kUnderWay;
  facts_.Do(ShardCall{shard, request_});
  tickets_[shard] = facts_.AskHello(shard);  // on the same queue
}

void SlotRound::OnHello(int shard) {
  if (facts_.roster.in_round() && calls_[shard] == Call::kUnreached) {
    Send(shard);  // I2
  }
}

absl::Status SlotRound::OnSet(int shard, const absl::Status& status) {
  if (status.ok()) {
    calls_[shard] = Call::kTaken;
    return absl::OkStatus();
  }
  const absl::Status named = Annotate(status, facts_.tracker.Name(shard));
  if (InstructionOf(status.code()) != Instruction::kRepeat) {
    return named;
  }
  calls_[shard] = Call::kUnreached;
  facts_.Warn(named.message(), ": workers that register wait for it");
  return absl::OkStatus();
}

}  // namespace weir
