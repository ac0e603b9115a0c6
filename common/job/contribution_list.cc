#include "common/job/contribution_list.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace weir {
namespace {

// Keeps I1 in `out`: an empty range is dropped, and one that touches or
// overlaps the last is joined to it.
// REQUIRES: `range` does not begin before the last one does.
void AppendJoined(ContributionRange range,
                  std::vector<ContributionRange>* out) {
  if (range.begin == range.end) {
    return;
  }
  if (!out->empty() && out->back().end >= range.begin) {
    out->back().end = std::max(out->back().end, range.end);
    return;
  }
  out->push_back(range);
}

}  // namespace

int64_t SamplesOf(double epochs, int64_t sample_count) {
  const double exact = epochs * static_cast<double>(sample_count);
  const double whole = std::round(exact);
  double samples = std::ceil(exact);
  // In doubles 0.07 * 100 is a little over 7; it must give 7 samples, not 8.
  if (std::abs(exact - whole) <= 1e-9 * (1.0 + whole)) {
    samples = whole;
  }
  return std::max<int64_t>(1, static_cast<int64_t>(samples));
}

int64_t ContributionsOf(double epochs, int64_t sample_count,
                        int64_t batch_size) {
  return (SamplesOf(epochs, sample_count) - 1) / batch_size + 1;
}

absl::StatusOr<ContributionList> ContributionList::Create(
    std::span<const ContributionRange> applied, int64_t total) {
  if (total < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("contributions: total is ", total));
  }
  ContributionList list;
  list.total_ = total;
  int64_t end = 0;
  for (const ContributionRange& range : applied) {
    if (range.begin < end || range.end < range.begin || range.end > total) {
      return absl::InvalidArgumentError(absl::StrCat(
          "contributions: applied range [", range.begin, ", ", range.end,
          ") is not sorted, disjoint and inside [0, ", total, ")"));
    }
    end = range.end;
    AppendJoined(range, &list.applied_);
  }
  int64_t begin = 0;
  const auto add_gap = [&list, &begin](int64_t gap_end) {
    if (begin < gap_end) {
      list.gaps_.push_back({begin, gap_end});
      list.gap_first_.push_back(list.remaining_count_);
      list.remaining_count_ += gap_end - begin;
    }
  };
  for (const ContributionRange& range : list.applied_) {
    add_gap(range.begin);
    begin = range.end;
  }
  add_gap(total);
  return list;
}

int64_t ContributionList::At(int64_t k) const {
  WEIR_CHECK(k >= 0 && k < remaining_count_);
  // The last gap whose first element is at or before k. There is one, since the
  // first gap begins with element 0.
  const auto after = std::upper_bound(gap_first_.begin(), gap_first_.end(), k);
  const size_t gap = static_cast<size_t>(after - gap_first_.begin()) - 1;
  return gaps_[gap].begin + (k - gap_first_[gap]);
}

int64_t ContributionList::ContributionCount(int slot, int slot_count) const {
  WEIR_CHECK(slot >= 0 && slot < slot_count);
  if (remaining_count_ <= slot) {
    return 0;
  }
  return (remaining_count_ - slot - 1) / slot_count + 1;
}

void ContributionList::AppendElements(
    int64_t first, int64_t last, std::vector<ContributionRange>* out) const {
  if (first == last) {
    return;
  }
  const auto after =
      std::upper_bound(gap_first_.begin(), gap_first_.end(), first);
  size_t gap = static_cast<size_t>(after - gap_first_.begin()) - 1;
  while (first < last) {
    const int64_t begin = gaps_[gap].begin + (first - gap_first_[gap]);
    const int64_t count = std::min(last - first, gaps_[gap].end - begin);
    AppendJoined({begin, begin + count}, out);
    first += count;
    ++gap;
  }
}

absl::StatusOr<std::vector<ContributionRange>> ContributionList::Applied(
    std::span<const int64_t> next) const {
  const int slot_count = static_cast<int>(next.size());
  if (slot_count == 0) {
    return applied_;
  }
  for (int slot = 0; slot < slot_count; ++slot) {
    const int64_t contributions = ContributionCount(slot, slot_count);
    if (next[slot] < 0 || next[slot] > contributions) {
      return absl::InvalidArgumentError(
          absl::StrCat("contributions: slot ", slot, " of ", slot_count,
                       " has next sequence number ", next[slot],
                       ", but its work is ", contributions, " contributions"));
    }
  }
  // Rounds that every slot has done are one run of elements. What faster slots
  // did beyond them is added one by one, in ascending order, as AppendElements
  // needs it.
  const int64_t common = *std::min_element(next.begin(), next.end());
  const int64_t last = *std::max_element(next.begin(), next.end());
  std::vector<ContributionRange> done;
  AppendElements(0, common * slot_count, &done);
  for (int64_t sequence = common; sequence < last; ++sequence) {
    for (int slot = 0; slot < slot_count; ++slot) {
      if (sequence < next[slot]) {
        const int64_t element = sequence * slot_count + slot;
        AppendElements(element, element + 1, &done);
      }
    }
  }
  // Both lists are sorted, and they are disjoint; the last loop restores I1
  // where their ranges touch.
  std::vector<ContributionRange> sorted(applied_.size() + done.size());
  std::merge(applied_.begin(), applied_.end(), done.begin(), done.end(),
             sorted.begin(),
             [](const ContributionRange& a, const ContributionRange& b) {
               return a.begin < b.begin;
             });
  std::vector<ContributionRange> joined;
  for (const ContributionRange& range : sorted) {
    AppendJoined(range, &joined);
  }
  return joined;
}

}  // namespace weir
