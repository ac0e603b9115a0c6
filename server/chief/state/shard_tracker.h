// What the chief knows of its shards: which of them answer, since when, and
// with which marks.
//
// Place: inside JobState, which sends the Hellos that this asks for.
//
// Terms
//   ticket  the number of a Hello to one shard, from 1. A shard is fresh for a
//           ticket once this Hello, or a later one, has a good answer.
//
// Invariants
//   I1. Time in which the chief itself stood still is no silence of a shard, as
//       in PeerWatch (I4 there).
//
// Threads: compatible.
// Errors: UNAVAILABLE          a shard has not answered for lost_after.
//         FAILED_PRECONDITION  a shard was restarted.
//         PERMISSION_DENIED    another chief made a shard's history.
#ifndef SERVER_CHIEF_STATE_SHARD_TRACKER_H_
#define SERVER_CHIEF_STATE_SHARD_TRACKER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/job/slot_marks.h"
#include "proto/ps.pb.h"

namespace weir {

class ShardTracker {
 public:
  ShardTracker(std::vector<std::string> addresses, int64_t lost_after_ns);

  int count() const { return static_cast<int>(shards_.size()); }
  std::string Name(int shard) const;  // "ps 1 (host:port)"
  std::vector<std::string> Names() const;

  // Records that a Hello was sent; returns its ticket.
  uint64_t Asked(int shard, int64_t now_ns);
  // Takes the answer to the oldest Hello under way.
  void Answered(int shard, const absl::StatusOr<HelloReply>& reply,
                int64_t now_ns);

  // True if no Hello is under way and `every_ns` has passed since the last one
  // was sent.
  bool Due(int shard, int64_t every_ns, int64_t now_ns) const;
  bool Fresh(int shard, uint64_t ticket) const;
  bool AllAnswered() const;  // each shard at least once, without an error
  const HelloReply& hello(int shard) const { return shards_[shard].hello; }
  const absl::Status& last_error(int shard) const {
    return shards_[shard].error;
  }
  std::vector<HelloReply> hellos() const;

  // From now on each shard must stay in its process and in this history.
  void Expect(uint64_t history, int64_t now_ns);
  void SetIncarnation(int shard, uint64_t incarnation);
  // Says that the chief is awake. Call often, and always before Check: after a
  // longer time without a look the silence of every shard begins anew.
  void Look(int64_t now_ns);
  // Returns OK before Expect and while no shard is lost; else an error that
  // names one. `reached_ns` is when the workers last had a contribution
  // acknowledged, which every shard takes part in: a shard that only the chief
  // does not reach is not lost.
  absl::Status Check(int64_t now_ns, int64_t reached_ns) const;
  // A shard that has not answered the chief for a while, if there is one.
  std::optional<int> Unreachable(int64_t now_ns) const;

  // What all shards say of `slot`, from the newest answers.
  SlotMarks Marks(int slot) const;
  uint64_t NextSequenceMin(int slot) const {
    return Marks(slot).next_sequence();
  }

 private:
  struct Shard {
    std::string address;
    HelloReply hello;
    absl::Status error;
    uint64_t incarnation = 0;  // 0: not known
    uint64_t asked = 0;
    uint64_t answered = 0;
    uint64_t fresh = 0;  // newest ticket with a good answer
    int64_t asked_ns = 0;
    int64_t heard_ns = 0;
  };

  std::vector<Shard> shards_;
  const int64_t lost_after_ns_;
  int64_t looked_ns_ = 0;
  uint64_t history_ = 0;  // 0: nothing expected
};

}  // namespace weir

#endif  // SERVER_CHIEF_STATE_SHARD_TRACKER_H_
