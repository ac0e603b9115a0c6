// What the shards of a job say of one slot, taken together.
//
// Place: whoever starts a worker reads from it with which sequence number the
// worker begins; the chief reads the progress and the checkpoints' marks.
//
// Terms
//   mark  the sequence number that a block expects next from the slot.
//   torn  the slot's marks differ: a contribution of it is applied in part.
//
// Invariants
//   I1. A shard without marks, whose smallest mark is larger than its largest
//       (SlotStatus in proto/ps.proto), decides nothing about marks.
// Threads: compatible.
#ifndef CLIENT_CC_JOB_SLOT_MARKS_H_
#define CLIENT_CC_JOB_SLOT_MARKS_H_

#include <cstdint>

#include "google/protobuf/repeated_field.h"
#include "proto/ps.pb.h"

namespace weir {

class SlotMarks {
 public:
  explicit SlotMarks(uint32_t slot) : slot_(slot) {}

  // Takes what one shard says of its slots. A shard that does not know the slot
  // expects its number 0.
  void Add(const google::protobuf::RepeatedPtrField<SlotStatus>& slots);

  // The smallest mark, 0 if there are none.
  uint64_t next_sequence() const { return empty() ? 0 : smallest_; }
  bool torn() const { return smallest_ < largest_; }
  bool empty() const { return smallest_ > largest_; }  // there are no marks
  uint32_t generation() const { return generation_; }  // the largest
  // True if every shard has retired the slot in this generation. An older one's
  // retirement says nothing of the process that has the slot now.
  bool RetiredIn(uint32_t generation) const;

 private:
  const uint32_t slot_;
  uint64_t smallest_ = UINT64_MAX;
  uint64_t largest_ = 0;
  uint32_t generation_ = 0;
  uint32_t generation_min_ = UINT32_MAX;
  bool retired_ = true;  // by every shard, whatever the generation
};

}  // namespace weir

#endif  // CLIENT_CC_JOB_SLOT_MARKS_H_
