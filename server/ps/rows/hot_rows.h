// The rows of each table that were updated most.
//
// Place: TableGroup, for GetStatus. They are found by a look at every row,
// which takes seconds with many millions of rows.
//
// Invariants
//   I1. One thread looks at a time; others wait for what it finds.
//   I2. What was found is told for kHotRowsKept from then on, and for as long
//       as the look took. So looking takes half of one core at most, however
//       often it is asked for.
// Threads: safe.
#ifndef SERVER_PS_ROWS_HOT_ROWS_H_
#define SERVER_PS_ROWS_HOT_ROWS_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "server/ps/table/table.h"

namespace weir {

class HotRows {
 public:
  using ByTable = std::vector<std::vector<HotRow>>;

  // `look` finds the rows of every table.
  HotRows(Clock* clock, std::function<ByTable()> look)
      : clock_(clock), look_(std::move(look)) {}

  ByTable Get();

 private:
  Clock* const clock_;
  const std::function<ByTable()> look_;
  Mutex mutex_;
  ByTable found_ ABSL_GUARDED_BY(mutex_);
  int64_t until_ns_ ABSL_GUARDED_BY(mutex_) = INT64_MIN;  // found_ is told
};

}  // namespace weir

#endif  // SERVER_PS_ROWS_HOT_ROWS_H_
