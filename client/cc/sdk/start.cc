#include "client/cc/sdk/start.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir::sdk {
namespace {

// Each lost try is another process of the same worker that came first.
constexpr int kTakeTries = 16;

absl::Status MayWait(const StartCalls& calls) {
  if (!calls.on_wait) {
    return absl::OkStatus();
  }
  return calls.on_wait();
}

std::chrono::milliseconds TimeFor(const StartCalls& calls, size_t bytes) {
  return calls.call_timeout +
         std::chrono::milliseconds(bytes * 1000 / kLinkBytesPerSecondMin);
}

absl::StatusOr<HelloReply> Ask(const StartCalls& calls, size_t s) {
  auto hello = (*calls.links)[s]->Hello(calls.call_timeout);
  WEIR_RETURN_IF_ERROR(Annotate(hello.status(), calls.names[s]));
  return hello;
}

}  // namespace

absl::StatusOr<bool> MustMakeShards(const std::vector<HelloReply>& hellos) {
  const HelloReply* active = nullptr;
  for (const HelloReply& hello : hellos) {
    if (hello.state() == ACTIVE) {
      active = &hello;
    }
  }
  if (active == nullptr) {
    return true;  // whatever they hold, nobody has trained from it
  }
  // Values are assigned on all shards before the first one is opened. So beside
  // an active shard, one that is empty or of another history has lost its own;
  // a loaded one only waits for the slots of a process that died.
  const auto lost =
      std::count_if(hellos.begin(), hellos.end(), [&](const HelloReply& hello) {
        return hello.state() == EMPTY || (hello.state() == LOADED &&
                                          hello.history() != active->history());
      });
  if (lost > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        lost, " of ", hellos.size(),
        " ps lost their tensors; shut all of them down and start anew"));
  }
  return false;
}

absl::Status DeclareShard(const StartCalls& calls, size_t s,
                          const Declaration& declaration,
                          std::chrono::milliseconds patience) {
  DeclareRequest request;
  *request.mutable_declaration() = declaration;
  request.set_shard(static_cast<uint32_t>(s));
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    // A ps finishes a declaration also if nobody waits for it any more, and
    // then answers the repeat at once. So large tables need no longer timeout.
    const absl::Status status =
        (*calls.links)[s]->Declare(request, calls.call_timeout).status();
    if (!absl::IsDeadlineExceeded(status) ||
        std::chrono::steady_clock::now() >= deadline) {
      return Annotate(status, calls.names[s]);
    }
    WEIR_RETURN_IF_ERROR(MayWait(calls));
  }
}

absl::Status AssignPieces(const StartCalls& calls, size_t s,
                          const std::vector<AssignPiece>& pieces) {
  size_t next = 0;
  while (next < pieces.size()) {
    WEIR_RETURN_IF_ERROR(MayWait(calls));
    const size_t begin = next;
    size_t bytes = 0;
    size_t end = next;
    // At least one piece, however large.
    while (end < pieces.size() &&
           (end == begin ||
            bytes + pieces[end].bytes.size() <= kAssignBytesPerCall)) {
      bytes += pieces[end++].bytes.size();
    }
    const absl::Status status = SendUntilWhole([&] {
      next = begin;  // a repeat sends the same pieces again
      return (*calls.links)[s]
          ->Assign(TimeFor(calls, bytes),
                   [&](AssignChunk* header, std::span<const char>* payload) {
                     if (next == end) {
                       return false;
                     }
                     *header = pieces[next].header;
                     *payload = pieces[next++].bytes;
                     return true;
                   })
          .status();
    });
    WEIR_RETURN_IF_ERROR(Annotate(status, calls.names[s]));
    next = end;
  }
  return absl::OkStatus();
}

absl::StatusOr<TakenSlot> TakeSlot(const StartCalls& calls,
                                   const Sender& sender, uint32_t slot,
                                   uint64_t process) {
  const size_t shards = calls.links->size();
  absl::Status first;
  for (int attempt = 0; attempt < kTakeTries; ++attempt) {
    // One more than the largest that any shard knows: an earlier attempt may
    // have come to some of the shards only.
    TakenSlot taken;
    for (size_t s = 0; s < shards; ++s) {
      WEIR_ASSIGN_OR_RETURN(const HelloReply hello, Ask(calls, s));
      for (const SlotStatus& status : hello.slot()) {
        if (status.slot() == slot) {
          taken.generation = std::max(taken.generation, status.generation());
        }
      }
    }
    SetSlotsRequest request;
    *request.mutable_sender() = sender;
    SetSlotsRequest::Slot* const entry = request.add_slot();
    entry->set_slot(slot);
    entry->set_generation(++taken.generation);
    entry->set_process(process);
    first = (*calls.links)[0]->SetSlots(request, calls.call_timeout);
    // I1: shard 0 refuses a generation that it has seen from another process.
    // No other shard was told yet, so trying a later one is safe.
    if (absl::IsPermissionDenied(first)) {
      WEIR_RETURN_IF_ERROR(MayWait(calls));
      continue;
    }
    WEIR_RETURN_IF_ERROR(Annotate(first, calls.names[0]));
    // I2: a refusal from here on is final. A newer process was first at shard
    // 0, and has this slot.
    for (size_t s = 1; s < shards; ++s) {
      WEIR_RETURN_IF_ERROR(
          Annotate((*calls.links)[s]->SetSlots(request, calls.call_timeout),
                   absl::StrCat("worker ", slot, ": ", calls.names[s])));
    }
    // Only now can nobody else move the slot's marks. The smallest one counts:
    // a contribution that an earlier process left torn is finished by repeating
    // it.
    uint64_t next_sequence = ~uint64_t{0};
    for (size_t s = 0; s < shards; ++s) {
      WEIR_ASSIGN_OR_RETURN(const HelloReply hello, Ask(calls, s));
      for (const SlotStatus& status : hello.slot()) {
        if (status.slot() == slot) {
          next_sequence = std::min(next_sequence, status.next_sequence_min());
        }
      }
    }
    if (next_sequence != ~uint64_t{0}) {
      taken.next_sequence = next_sequence;
    }
    return taken;
  }
  return absl::PermissionDeniedError(
      absl::StrCat("worker ", slot, ": other processes of the same index took ",
                   "every generation that was tried; start one process per "
                   "worker (",
                   first.message(), ")"));
}

}  // namespace weir::sdk
