#include "common/job/contribution_list.h"

#include <algorithm>
#include <cmath>
#include <utility>

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

// Elements of slot `slot` when `element_count` are dealt to `slot_count` slots.
int64_t CountOfSlot(int64_t element_count, int slot, int slot_count) {
  if (element_count <= slot) {
    return 0;
  }
  return (element_count - slot - 1) / slot_count + 1;
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

absl::StatusOr<ContributionList::Deal> ContributionList::Deal::Create(
    std::span<const int64_t> next, int64_t element_count) {
  const int slot_count = static_cast<int>(next.size());
  if (slot_count == 0) {
    return absl::InvalidArgumentError("contributions: a deal has no slots");
  }
  Deal deal;
  deal.next_.assign(next.begin(), next.end());
  for (int slot = 0; slot < slot_count; ++slot) {
    const int64_t contributions = CountOfSlot(element_count, slot, slot_count);
    if (next[slot] < 0 || next[slot] > contributions) {
      return absl::InvalidArgumentError(
          absl::StrCat("contributions: slot ", slot, " of ", slot_count,
                       " has next sequence number ", next[slot],
                       ", but its work is ", contributions, " contributions"));
    }
    deal.applied_count_ += next[slot];
    if (next[slot] > 0) {
      deal.end_ = std::max(deal.end_, (next[slot] - 1) * slot_count + slot + 1);
    }
  }
  deal.sorted_ = deal.next_;
  std::sort(deal.sorted_.begin(), deal.sorted_.end());
  int64_t applied = 0;  // of the slots before, all below deal.sorted_[i]
  for (int i = 0; i < slot_count; ++i) {
    deal.left_below_.push_back(i * deal.sorted_[i] - applied);
    applied += deal.sorted_[i];
  }
  return deal;
}

int64_t ContributionList::Deal::At(int64_t k) const {
  // The rounds from sorted_[last] on have elements of last + 1 slots left. The
  // first number in left_below_ is 0.
  const auto after =
      std::upper_bound(left_below_.begin(), left_below_.end(), k);
  const auto last = static_cast<size_t>(after - left_below_.begin()) - 1;
  const auto slots = static_cast<int64_t>(last) + 1;
  const int64_t round = sorted_[last] + (k - left_below_[last]) / slots;
  int64_t slots_before = (k - left_below_[last]) % slots;
  size_t slot = 0;
  while (next_[slot] > sorted_[last] || slots_before-- > 0) {
    ++slot;
  }
  return round * std::ssize(next_) + static_cast<int64_t>(slot);
}

absl::StatusOr<ContributionList> ContributionList::Create(
    const AppliedWork& applied, int64_t total) {
  if (total < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("contributions: total is ", total));
  }
  ContributionList list;
  list.total_ = total;
  int64_t end = 0;
  for (const ContributionRange& range : applied.ranges) {
    if (range.begin < end || range.end < range.begin || range.end > total) {
      return absl::InvalidArgumentError(absl::StrCat(
          "contributions: applied range [", range.begin, ", ", range.end,
          ") is not sorted, disjoint and inside [0, ", total, ")"));
    }
    end = range.end;
    AppendJoined(range, &list.applied_.ranges);
  }
  int64_t begin = 0;
  const auto add_gap = [&list, &begin](int64_t gap_end) {
    if (begin < gap_end) {
      list.gaps_.push_back({begin, gap_end});
      list.gap_first_.push_back(list.remaining_count_);
      list.remaining_count_ += gap_end - begin;
    }
  };
  for (const ContributionRange& range : list.applied_.ranges) {
    add_gap(range.begin);
    begin = range.end;
  }
  add_gap(total);
  for (const std::vector<int64_t>& next : applied.deals) {
    absl::StatusOr<Deal> deal = Deal::Create(next, list.remaining_count_);
    if (!deal.ok()) {
      return deal.status();
    }
    list.remaining_count_ -= deal->applied_count();
    list.deals_.push_back(*std::move(deal));
  }
  list.applied_.deals = applied.deals;
  return list;
}

int64_t ContributionList::At(int64_t k) const {
  WEIR_CHECK(k >= 0 && k < remaining_count_);
  for (auto deal = deals_.rbegin(); deal != deals_.rend(); ++deal) {
    k = deal->At(k);
  }
  // The last gap whose first element is at or before k. There is one, since the
  // first gap begins with element 0.
  const auto after = std::upper_bound(gap_first_.begin(), gap_first_.end(), k);
  const size_t gap = static_cast<size_t>(after - gap_first_.begin()) - 1;
  return gaps_[gap].begin + (k - gap_first_[gap]);
}

int64_t ContributionList::ContributionCount(int slot, int slot_count) const {
  WEIR_CHECK(slot >= 0 && slot < slot_count);
  return CountOfSlot(remaining_count_, slot, slot_count);
}

std::vector<ContributionRange> ContributionList::WithFirst(
    int64_t count) const {
  std::vector<ContributionRange> done;
  for (size_t gap = 0; count > 0; ++gap) {
    const ContributionRange& range = gaps_[gap];
    const int64_t part = std::min(count, range.end - range.begin);
    done.push_back({range.begin, range.begin + part});
    count -= part;
  }
  // Both lists are sorted, and they are disjoint; the last loop restores I1
  // where their ranges touch.
  std::vector<ContributionRange> sorted(applied_.ranges.size() + done.size());
  std::merge(applied_.ranges.begin(), applied_.ranges.end(), done.begin(),
             done.end(), sorted.begin(),
             [](const ContributionRange& a, const ContributionRange& b) {
               return a.begin < b.begin;
             });
  std::vector<ContributionRange> joined;
  for (const ContributionRange& range : sorted) {
    AppendJoined(range, &joined);
  }
  return joined;
}

absl::StatusOr<AppliedWork> ContributionList::Applied(
    std::span<const int64_t> next) const {
  AppliedWork work = applied_;
  if (next.empty()) {
    return work;
  }
  const absl::StatusOr<Deal> deal = Deal::Create(next, remaining_count_);
  if (!deal.ok()) {
    return deal.status();
  }
  // Of what the last deal leaves, the first `first` elements are applied: all,
  // or the rounds that every slot has done.
  const int64_t common = *std::min_element(next.begin(), next.end());
  int64_t first = deal->end();
  if (deal->gap_count() > 0) {
    first = common * std::ssize(next);
  }
  // I2: a deal without gaps is a number of first elements of what was dealt.
  while (!work.deals.empty()) {
    const Deal& last = deals_[work.deals.size() - 1];
    if (first < last.gap_count()) {
      break;
    }
    first += last.end() - last.gap_count();
    work.deals.pop_back();
  }
  if (work.deals.empty()) {
    work.ranges = WithFirst(first);
  } else if (first > 0) {
    work.deals.push_back({first});  // to one slot
  }
  if (deal->gap_count() > 0) {
    work.deals.push_back(deal->next());
    for (int64_t& number : work.deals.back()) {
      number -= common;
    }
  }
  return work;
}

}  // namespace weir
