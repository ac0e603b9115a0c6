#include "client/cc/job/shard_start.h"

#include <deque>

#include "absl/strings/str_cat.h"
#include "client/cc/job/slot_marks.h"
#include "client/cc/transport/retry_policy.h"
#include "common/base/clock.h"
#include "common/base/identity.h"
#include "common/base/status.h"

namespace weir {
namespace {

// Each lost try is another process of the same worker that came first.
constexpr int kTakeTries = 16;

absl::Status MayWait(const StartingShard& shard) {
  return shard.on_wait ? shard.on_wait() : absl::OkStatus();
}

// What all shards say of `slot` now.
absl::StatusOr<SlotMarks> AskMarks(const std::vector<StartingShard>& shards,
                                   uint32_t slot) {
  SlotMarks marks(slot);
  for (const StartingShard& shard : shards) {
    const auto hello = shard.link->Hello(shard.call_timeout);
    WEIR_RETURN_IF_ERROR(Annotate(hello.status(), shard.Name()));
    marks.Add(hello->slot());
  }
  return marks;
}

// Values of one segment, on their way.
struct Piece {
  AssignChunk header;
  std::vector<float> space;
  std::span<const float> values;
};

absl::Status SendPieces(const StartingShard& shard,
                        const std::deque<Piece>& pieces, size_t bytes) {
  const auto timeout =
      shard.call_timeout +
      std::chrono::milliseconds(bytes * 1000 / kLinkBytesPerSecondMin);
  // Assigning the same values again changes nothing.
  return SendUntilWhole([&] {
    auto next = pieces.begin();
    return shard.link
        ->Assign(timeout,
                 [&](AssignChunk* header, std::span<const char>* payload) {
                   if (next == pieces.end()) {
                     return false;
                   }
                   *header = next->header;
                   *payload = {
                       reinterpret_cast<const char*>(next->values.data()),
                       next->values.size_bytes()};
                   ++next;
                   return true;
                 })
        .status();
  });
}

}  // namespace

std::string StartingShard::Name() const {
  return absl::StrCat("ps ", index, " (", link->address(), ")");
}

Sender JobSender(const Declaration& declaration, uint64_t layout_fingerprint) {
  Sender sender;
  sender.set_job(declaration.job());
  sender.set_history(declaration.history());
  sender.set_layout_fingerprint(layout_fingerprint);
  return sender;
}

absl::Status DeclareShard(const StartingShard& shard,
                          const Declaration& declaration,
                          std::chrono::milliseconds patience) {
  DeclareRequest request;
  *request.mutable_declaration() = declaration;
  request.set_shard(static_cast<uint32_t>(shard.index));
  const auto deadline = MonotonicClock::now() + patience;
  for (;;) {
    // A ps finishes a declaration also if nobody waits for it any more, and
    // then answers the repeat at once. So large tables need no longer timeout.
    const absl::Status status =
        shard.link->Declare(request, shard.call_timeout).status();
    // Of a code that asks for a repeat, RESOURCE_EXHAUSTED alone is the ps's
    // own answer: it has no room for the shard, and waiting makes none.
    if (status.ok() || absl::IsResourceExhausted(status) ||
        InstructionOf(status.code()) != Instruction::kRepeat ||
        MonotonicClock::now() >= deadline) {
      return Annotate(status, shard.Name());
    }
    WEIR_RETURN_IF_ERROR(MayWait(shard));
    Clock::Real()->SleepFor(RetryPolicy::kBackoffMin);
  }
}

absl::Status AssignShard(const StartingShard& shard, const Layout& layout,
                         const Sender& sender, const SegmentValues& values) {
  for (int block = 0; block < layout.block_count(shard.index);) {
    WEIR_RETURN_IF_ERROR(MayWait(shard));
    // The call borrows the values until it returns, so one call has a bounded
    // part of the shard. A deque: pieces must not move while it grows.
    std::deque<Piece> pieces;
    size_t bytes = 0;
    for (; block < layout.block_count(shard.index); ++block) {
      const BlockId id = {shard.index, block};
      const auto more =
          static_cast<size_t>(layout.block(id).count) * sizeof(float);
      if (bytes > 0 && bytes + more > kAssignBytesPerCall) {
        break;
      }
      for (const Segment& segment : layout.segments(id)) {
        Piece& piece = pieces.emplace_back();
        WEIR_ASSIGN_OR_RETURN(piece.values, values(segment, &piece.space));
        if (piece.values.empty()) {
          pieces.pop_back();
          continue;
        }
        *piece.header.mutable_sender() = sender;
        piece.header.set_block(static_cast<uint32_t>(block));
        piece.header.set_offset(static_cast<uint32_t>(segment.block_offset));
        bytes += piece.values.size_bytes();
      }
    }
    if (!pieces.empty()) {
      WEIR_RETURN_IF_ERROR(
          Annotate(SendPieces(shard, pieces, bytes), shard.Name()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TakenSlot> TakeSlot(const std::vector<StartingShard>& shards,
                                   const Sender& sender, uint32_t slot,
                                   uint64_t process) {
  absl::Status first;
  for (int attempt = 0; attempt < kTakeTries; ++attempt) {
    // One more than the largest that any shard knows: an earlier attempt may
    // have come to some of the shards only.
    TakenSlot taken;
    WEIR_ASSIGN_OR_RETURN(const SlotMarks before, AskMarks(shards, slot));
    taken.generation = before.generation() + 1;
    SetSlotsRequest request;
    *request.mutable_sender() = sender;
    SetSlotsRequest::Slot* const entry = request.add_slot();
    entry->set_slot(slot);
    entry->set_generation(taken.generation);
    entry->set_process(process);
    taken.capability_high = RandomId();
    taken.capability_low = RandomId();
    entry->set_capability_high(taken.capability_high);
    entry->set_capability_low(taken.capability_low);
    first = shards[0].link->SetSlots(request, shards[0].call_timeout);
    // I1: shard 0 refuses a generation that it has seen from another process.
    // No other shard was told yet, so trying a later one is safe.
    if (absl::IsPermissionDenied(first)) {
      WEIR_RETURN_IF_ERROR(MayWait(shards[0]));
      continue;
    }
    WEIR_RETURN_IF_ERROR(Annotate(first, shards[0].Name()));
    // I2: a refusal from here on is final. A newer process was first at shard
    // 0, and has this slot.
    for (size_t s = 1; s < shards.size(); ++s) {
      WEIR_RETURN_IF_ERROR(
          Annotate(shards[s].link->SetSlots(request, shards[s].call_timeout),
                   absl::StrCat("worker ", slot, ": ", shards[s].Name())));
    }
    // Only now can nobody else move the slot's marks. The smallest one counts:
    // a contribution that an earlier process left torn is finished by repeating
    // it.
    WEIR_ASSIGN_OR_RETURN(const SlotMarks marks, AskMarks(shards, slot));
    taken.next_sequence = marks.next_sequence();
    return taken;
  }
  return absl::PermissionDeniedError(
      absl::StrCat("worker ", slot, ": other processes of the same rank took ",
                   "every generation that was tried; start one process per "
                   "worker (",
                   first.message(), ")"));
}

}  // namespace weir
