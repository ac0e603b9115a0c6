// How many contributions a job has, which are left to do, and who does which.
//
// Place: the chief hands out work and writes the manifest with it, and a worker
// finds which contribution its next sequence number is. Both compute it from
// the same facts.
//
// Terms
//   applied    contributions that were applied when this history began.
//   remaining  the complement of applied within [0, total), ascending.
//   of a slot  sequence number i in slot w of W is element i*W + w of
//              remaining.
//   deal       how far each slot came in an earlier history: its next sequence
//              number. Where workers differ in speed there is a gap in every
//              round that a slow one lags behind; as ranges these grow without
//              end, and as a deal they are W numbers.
//
// Invariants
//   I1. Ranges are sorted, disjoint, not empty and do not touch.
//   I2. A deal is kept until later histories have done all that lies between
//       its elements. From then on the ranges say the same, or a deal to one
//       slot where an older deal is left.
// Threads: immutable, safe.
// Errors: INVALID_ARGUMENT names the range or the slot that does not fit.
#ifndef COMMON_JOB_CONTRIBUTION_LIST_H_
#define COMMON_JOB_CONTRIBUTION_LIST_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

// [begin, end)
struct ContributionRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const ContributionRange&) const = default;
};

struct AppliedWork {
  std::vector<ContributionRange> ranges;
  // What else is applied: each deal is one of what the ranges and the deals
  // before it leave, by slot.
  std::vector<std::vector<int64_t>> deals;
  bool operator==(const AppliedWork&) const = default;
};

// A job's contributions are at most this many, so that products with the
// samples of a batch stay far from overflow.
inline constexpr int64_t kContributionsMax = int64_t{1} << 38;

// Returns the samples of `epochs` times `sample_count`, rounded up.
// REQUIRES: both are > 0, and so are those below.
int64_t SamplesOf(double epochs, int64_t sample_count);
// Returns how many contributions of `batch_size` samples these are; the last
// one may have fewer.
int64_t ContributionsOf(double epochs, int64_t sample_count,
                        int64_t batch_size);

class ContributionList {
 public:
  // Nothing to do.
  ContributionList() = default;

  // The ranges must be sorted, disjoint and inside [0, total), and the slots of
  // a deal must have had that many contributions. Ranges that touch are joined,
  // and empty ones are dropped.
  static absl::StatusOr<ContributionList> Create(const AppliedWork& applied,
                                                 int64_t total);

  int64_t total() const { return total_; }
  int64_t remaining_count() const { return remaining_count_; }
  int64_t applied_count() const { return total_ - remaining_count_; }
  const AppliedWork& applied() const { return applied_; }

  // The k-th remaining contribution. REQUIRES: 0 <= k < remaining_count().
  // Cost: O(log ranges + slots of all deals).
  int64_t At(int64_t k) const;

  // Contributions of `slot` when `slot_count` slots share the work.
  // REQUIRES: 0 <= slot < slot_count.
  int64_t ContributionCount(int slot, int slot_count) const;

  // The job's contribution that has this sequence number in `slot`.
  // REQUIRES: sequence < ContributionCount(slot, slot_count).
  int64_t ContributionAt(int slot, int slot_count, int64_t sequence) const {
    return At(sequence * slot_count + slot);
  }

  // What is applied once contributions 0 to next[w] - 1 of every slot w of
  // next.size() are applied as well.
  // Cost: O(ranges + slots of all deals).
  absl::StatusOr<AppliedWork> Applied(std::span<const int64_t> next) const;

 private:
  // A deal of `element_count` elements to next.size() slots.
  class Deal {
   public:
    static absl::StatusOr<Deal> Create(std::span<const int64_t> next,
                                       int64_t element_count);

    const std::vector<int64_t>& next() const { return next_; }
    int64_t applied_count() const { return applied_count_; }
    // One behind the last element that is applied; 0 if none is.
    int64_t end() const { return end_; }
    // Elements below end() that are left.
    int64_t gap_count() const { return end_ - applied_count_; }
    // The k-th element that is left. REQUIRES: there is one.
    int64_t At(int64_t k) const;

   private:
    std::vector<int64_t> next_;
    int64_t applied_count_ = 0;
    int64_t end_ = 0;
    // The next_ of all slots, ascending, and how many elements are left of the
    // rounds below each.
    std::vector<int64_t> sorted_;
    std::vector<int64_t> left_below_;
  };

  // The ranges once the first `count` elements that they leave are applied.
  std::vector<ContributionRange> WithFirst(int64_t count) const;

  AppliedWork applied_;
  // The gaps between the ranges, and the index of each one's first contribution
  // in what the ranges leave.
  std::vector<ContributionRange> gaps_;
  std::vector<int64_t> gap_first_;
  std::vector<Deal> deals_;  // of applied_
  int64_t total_ = 0;
  int64_t remaining_count_ = 0;
};

}  // namespace weir

#endif  // COMMON_JOB_CONTRIBUTION_LIST_H_
