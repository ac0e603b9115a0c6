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
//
// Invariants
//   I1. ranges() are sorted, disjoint, not empty and do not touch.
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

  // `applied` must be sorted, disjoint and inside [0, total). Ranges that touch
  // are joined, and empty ones are dropped.
  static absl::StatusOr<ContributionList> Create(
      std::span<const ContributionRange> applied, int64_t total);

  int64_t total() const { return total_; }
  int64_t remaining_count() const { return remaining_count_; }
  const std::vector<ContributionRange>& ranges() const { return applied_; }

  // The k-th remaining contribution. REQUIRES: 0 <= k < remaining_count().
  // Cost: O(log ranges).
  int64_t At(int64_t k) const;

  // Contributions of `slot` when `slot_count` slots share the work.
  // REQUIRES: 0 <= slot < slot_count.
  int64_t ContributionCount(int slot, int slot_count) const;

  // The job's contribution that has this sequence number in `slot`.
  // REQUIRES: sequence < ContributionCount(slot, slot_count).
  int64_t ContributionAt(int slot, int slot_count, int64_t sequence) const {
    return At(sequence * slot_count + slot);
  }

  // The applied ranges once contributions 0 to next[w] - 1 of every slot w of
  // next.size() are applied as well.
  // Cost: O(ranges + contributions by which slots are ahead of the slowest).
  absl::StatusOr<std::vector<ContributionRange>> Applied(
      std::span<const int64_t> next) const;

 private:
  // Appends the contributions of remaining elements [first, last).
  void AppendElements(int64_t first, int64_t last,
                      std::vector<ContributionRange>* out) const;

  std::vector<ContributionRange> applied_;
  // The gaps between them, and the index in `remaining` of each one's first.
  std::vector<ContributionRange> gaps_;
  std::vector<int64_t> gap_first_;
  int64_t total_ = 0;
  int64_t remaining_count_ = 0;
};

}  // namespace weir

#endif  // COMMON_JOB_CONTRIBUTION_LIST_H_
