#include "worker/train/work_list.h"

#include "common/base/check.h"
#include "common/base/status.h"
#include "proto/wire/applied_work.h"

namespace weir {

absl::StatusOr<WorkList> WorkList::Create(const Grant& grant) {
  WorkList work;
  work.sender_ = grant.sender();
  work.slot_ = work.sender_.slot();
  work.slot_count_ = grant.slot_count();
  work.per_step_ = grant.contributions_per_step();
  work.base_version_ = grant.base_version();
  // A chief of another version may say anything; a wrong grant would make this
  // worker compute the work of another slot.
  if (work.slot_ >= work.slot_count_ || grant.applied_range_size() % 2 != 0) {
    return Invalid("the chief granted slot ", work.slot_, " of ",
                   work.slot_count_, " with ", grant.applied_range_size(),
                   " range bounds");
  }
  auto list = ContributionList::Create(
      AppliedIn(grant), static_cast<int64_t>(grant.contribution_count()));
  if (!list.ok()) {
    return Annotate(list.status(), "the chief's grant");
  }
  work.list_ = *std::move(list);
  const uint64_t remaining =
      static_cast<uint64_t>(work.list_.remaining_count());
  if (work.per_step_ == 0) {
    work.contribution_count_ =
        static_cast<uint64_t>(work.list_.ContributionCount(
            static_cast<int>(work.slot_), static_cast<int>(work.slot_count_)));
    return work;
  }
  // k = ceil((n - w) / W). A slot beyond the step's contributions has no work.
  if (work.slot_ < work.per_step_) {
    work.per_slot_ =
        (work.per_step_ - work.slot_ + work.slot_count_ - 1) / work.slot_count_;
  }
  // The last step is filled up with contributions of weight 0: a shard
  // publishes a step only when all n are in.
  const uint64_t steps = (remaining + work.per_step_ - 1) / work.per_step_;
  work.contribution_count_ = steps * work.per_slot_;
  return work;
}

WorkUnit WorkList::At(uint64_t sequence) const {
  WEIR_CHECK(sequence < contribution_count_);
  WorkUnit work;
  work.sequence = sequence;
  if (!sync()) {
    work.contribution = static_cast<uint64_t>(list_.ContributionAt(
        static_cast<int>(slot_), static_cast<int>(slot_count_),
        static_cast<int64_t>(sequence)));
    return work;
  }
  // A slot with per_slot_ == 0 has contribution_count_ == 0, so the check above
  // has kept it away from this division.
  const uint64_t step = sequence / per_slot_;
  const uint64_t j = sequence % per_slot_;
  work.index = static_cast<uint32_t>(j * slot_count_ + slot_);
  work.version = base_version_ + step;
  work.last_of_step = j + 1 == per_slot_;
  const uint64_t element = step * per_step_ + work.index;
  work.beyond_end = element >= static_cast<uint64_t>(list_.remaining_count());
  if (!work.beyond_end) {
    work.contribution =
        static_cast<uint64_t>(list_.At(static_cast<int64_t>(element)));
  }
  return work;
}

}  // namespace weir
