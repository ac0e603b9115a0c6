#include "server/chief/state/shard_tracker.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cc/transport/peer_watch.h"

namespace weir {

ShardTracker::ShardTracker(std::vector<std::string> addresses,
                           int64_t lost_after_ns)
    : lost_after_ns_(lost_after_ns) {
  for (std::string& address : addresses) {
    Shard shard;
    shard.address = std::move(address);
    shards_.push_back(std::move(shard));
  }
}

std::string ShardTracker::Name(int shard) const {
  return absl::StrCat("ps ", shard, " (", shards_[shard].address, ")");
}

std::vector<std::string> ShardTracker::Names() const {
  std::vector<std::string> names;
  for (int s = 0; s < count(); ++s) {
    names.push_back(Name(s));
  }
  return names;
}

uint64_t ShardTracker::Asked(int shard, int64_t now_ns) {
  shards_[shard].asked_ns = now_ns;
  return ++shards_[shard].asked;
}

void ShardTracker::Answered(int shard, const absl::StatusOr<HelloReply>& reply,
                            int64_t now_ns) {
  // The shell makes the calls of a shard one after another, so the answers come
  // in the order of the tickets.
  Shard& s = shards_[shard];
  ++s.answered;
  s.error = reply.status();
  if (reply.ok()) {
    s.hello = *reply;
    s.fresh = s.answered;
    s.heard_ns = now_ns;
  }
}

bool ShardTracker::Due(int shard, int64_t every_ns, int64_t now_ns) const {
  const Shard& s = shards_[shard];
  return s.answered == s.asked &&
         (s.asked == 0 || now_ns - s.asked_ns >= every_ns);
}

bool ShardTracker::Fresh(int shard, uint64_t ticket) const {
  return shards_[shard].fresh >= ticket;
}

bool ShardTracker::AllAnswered() const {
  return std::all_of(shards_.begin(), shards_.end(),
                     [](const Shard& s) { return s.fresh > 0; });
}

std::vector<HelloReply> ShardTracker::hellos() const {
  std::vector<HelloReply> hellos;
  for (const Shard& shard : shards_) {
    hellos.push_back(shard.hello);
  }
  return hellos;
}

void ShardTracker::Expect(uint64_t history, int64_t now_ns) {
  history_ = history;
  for (Shard& shard : shards_) {
    // Declare or Restore may have taken longer than lost_after: its answer
    // shows that the shard is there.
    shard.heard_ns = now_ns;
    if (shard.incarnation == 0) {
      shard.incarnation = shard.hello.incarnation();
    }
    if (shard.hello.history() != history) {
      // The last answer is older than the history that was just made, and would
      // look like a shard that another chief has taken.
      shard.hello.Clear();
      shard.hello.set_incarnation(shard.incarnation);
      shard.hello.set_history(history);
      shard.hello.set_state(LOADED);
    }
  }
}

void ShardTracker::SetIncarnation(int shard, uint64_t incarnation) {
  shards_[shard].incarnation = incarnation;
}

void ShardTracker::Look(int64_t now_ns) {
  const int64_t late_ns =
      std::max(lost_after_ns_ / 4,
               std::chrono::nanoseconds(PeerWatch::kLateMin).count());
  if (now_ns - looked_ns_ > late_ns) {
    // I1: connections may have ended meanwhile, so that the first calls fail.
    for (Shard& shard : shards_) {
      shard.heard_ns = now_ns;
    }
  }
  looked_ns_ = now_ns;
}

absl::Status ShardTracker::Check(int64_t now_ns, int64_t reached_ns) const {
  if (history_ == 0) {
    return absl::OkStatus();
  }
  for (int s = 0; s < count(); ++s) {
    const Shard& shard = shards_[s];
    // A call that failed once may have met a stall of the chief's own: only
    // silence for a while counts, and only if the workers noticed it, too.
    if (now_ns - std::max(shard.heard_ns, reached_ns) > lost_after_ns_ &&
        !shard.error.ok()) {
      return absl::UnavailableError(absl::StrCat(
          Name(s), " has not answered for ",
          (now_ns - shard.heard_ns) / 1'000'000'000, " s (",
          shard.error.message(), "); start the job again with --resume"));
    }
    // Before the check of the incarnation: after another chief's Restore into a
    // new process this chief must give way, not end the other one's job.
    if (shard.hello.state() != EMPTY && shard.hello.history() != history_) {
      return absl::PermissionDeniedError(absl::StrCat(
          Name(s), " is at history ", absl::Hex(shard.hello.history()),
          ", not ", absl::Hex(history_)));
    }
    if (shard.hello.incarnation() != shard.incarnation ||
        shard.hello.state() == EMPTY) {
      return absl::FailedPreconditionError(
          absl::StrCat(Name(s),
                       " was restarted and has lost its shard; start the job "
                       "again with --resume"));
    }
  }
  return absl::OkStatus();
}

std::optional<int> ShardTracker::Unreachable(int64_t now_ns) const {
  for (int s = 0; s < count(); ++s) {
    // Half of the wait, so that nobody is held for a shard about to be lost.
    if (!shards_[s].error.ok() &&
        now_ns - shards_[s].heard_ns > lost_after_ns_ / 2) {
      return s;
    }
  }
  return std::nullopt;
}

SlotMarks ShardTracker::Marks(int slot) const {
  SlotMarks marks(static_cast<uint32_t>(slot));
  for (const Shard& shard : shards_) {
    marks.Add(shard.hello.slot());
  }
  return marks;
}

}  // namespace weir
