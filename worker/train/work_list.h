// Which contribution of the job has sequence number i in this worker's slot.
//
// Place: the train loop asks it. The answer is a pure function of what the
// chief granted, so a worker that replaces this one finds the same work.
//
// Terms
//   n, W, w   contributions per step (sync), slots, this slot.
//   k         sync: contributions of this slot per step, the m < n with m mod W
//             = w.
//   sync      sequence number t*k + j is contribution m = j*W + w of step t of
//             this history: element t*n + m of what remained when it began. An
//             element beyond the end counts with weight 0.
//   else      sequence number i is element i*W + w.
//
// Threads: immutable, safe.
// Errors: INVALID_ARGUMENT  a grant that contradicts itself.
#ifndef WORKER_TRAIN_WORK_LIST_H_
#define WORKER_TRAIN_WORK_LIST_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/job/contribution_list.h"
#include "proto/chief.pb.h"

namespace weir {

struct WorkUnit {
  uint64_t sequence = 0;
  bool beyond_end = false;    // sync: nothing to compute, weight 0
  uint64_t contribution = 0;  // of the whole job
  uint32_t index = 0;         // sync: m
  uint64_t version = 0;       // sync: compute from exactly this version
  bool last_of_step = false;  // sync: of this slot's contributions in the step
};

class WorkList {
 public:
  // `grant.contributions_per_step` > 0 means sync.
  static absl::StatusOr<WorkList> Create(const Grant& grant);

  bool sync() const { return per_step_ > 0; }
  // The worker, in this slot.
  const Sender& sender() const { return sender_; }
  // Contributions of this slot in this history.
  uint64_t contribution_count() const { return contribution_count_; }
  // REQUIRES: sequence < contribution_count().
  WorkUnit At(uint64_t sequence) const;

 private:
  WorkList() = default;

  Sender sender_;
  ContributionList list_;
  uint64_t slot_ = 0;  // of sender_
  uint64_t slot_count_ = 1;
  uint64_t per_step_ = 0;
  uint64_t per_slot_ = 0;  // k
  uint64_t base_version_ = 0;
  uint64_t contribution_count_ = 0;
};

}  // namespace weir

#endif  // WORKER_TRAIN_WORK_LIST_H_
