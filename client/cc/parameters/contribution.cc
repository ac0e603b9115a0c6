#include "client/cc/parameters/contribution.h"

#include <algorithm>

namespace weir {

void ContributionResult::AddReceipt(const Receipt& receipt, uint64_t count) {
  switch (receipt.outcome()) {
    case Receipt::DUPLICATE:
      duplicates += count;
      break;
    case Receipt::LEFT_OUT:
      bad = true;
      bad_number = receipt.bad_variable();
      break;
    case Receipt::ACCEPTED:
      staleness_sum += receipt.staleness() * count;
      staleness_count += count;
      staleness_max = std::max(staleness_max, receipt.staleness());
      break;
    default:  // nothing is settled
      break;
  }
}

void ContributionResult::Add(const ContributionResult& other) {
  if (other.bad && !bad) {
    bad = true;
    bad_number = other.bad_number;
    bad_name = other.bad_name;
  }
  duplicates += other.duplicates;
  staleness_sum += other.staleness_sum;
  staleness_count += other.staleness_count;
  staleness_max = std::max(staleness_max, other.staleness_max);
  rows_not_admitted += other.rows_not_admitted;
}

}  // namespace weir
