// Converts what is applied of a job between its messages and AppliedWork.
//
// Place: Manifest, Declaration and Grant have the same two fields for it,
// `applied_range` and `deal`; each of them is a Message here.
//
// Threads: safe.
// Errors: none. ContributionList::Create checks what came from a peer or a
//         file. A last range without an end is left out.
#ifndef PROTO_WIRE_APPLIED_WORK_H_
#define PROTO_WIRE_APPLIED_WORK_H_

#include <cstdint>
#include <vector>

#include "common/job/contribution_list.h"

namespace weir {

template <typename Message>
AppliedWork AppliedIn(const Message& message) {
  AppliedWork work;
  const auto& ranges = message.applied_range();
  for (int i = 0; i + 1 < ranges.size(); i += 2) {
    work.ranges.push_back(
        {static_cast<int64_t>(ranges[i]), static_cast<int64_t>(ranges[i + 1])});
  }
  for (const auto& deal : message.deal()) {
    work.deals.emplace_back(deal.next().begin(), deal.next().end());
  }
  return work;
}

template <typename Message>
void SetApplied(const AppliedWork& work, Message* message) {
  message->clear_applied_range();
  for (const ContributionRange& range : work.ranges) {
    message->add_applied_range(static_cast<uint64_t>(range.begin));
    message->add_applied_range(static_cast<uint64_t>(range.end));
  }
  message->clear_deal();
  for (const std::vector<int64_t>& next : work.deals) {
    message->add_deal()->mutable_next()->Add(next.begin(), next.end());
  }
}

}  // namespace weir

#endif  // PROTO_WIRE_APPLIED_WORK_H_
