// Who is at the rows of a shard: many uses at once, or one exclusive work.
//
// Place: TableGroup, which holds its lock around every call. A use is a pull
//   that reads rows, or an async update that moves them; exclusive work is
//   publishing a sync step, or writing a checkpoint.
//
// Invariants
//   I1. Exclusive work begins when the last use has ended, and one at a time.
//   I2. While exclusive work goes on or waits, no use begins: new uses cannot
//       keep it waiting.
// Threads: compatible.
#ifndef SERVER_PS_ROWS_ROW_USES_H_
#define SERVER_PS_ROWS_ROW_USES_H_

#include <deque>
#include <functional>
#include <utility>

#include "server/ps/block/continuations.h"

namespace weir {

class RowUses {
 public:
  bool MayBegin() const { return !exclusive_ && waiting_.empty(); }
  void Begin() { ++uses_; }
  void End(DueList& due) {
    --uses_;
    Start(due);
  }

  // Adds `work` to `due` when its turn has come, now or later. `first`: it goes
  // in front of work that waits.
  void Ask(std::function<void()> work, bool first, DueList& due) {
    waiting_.insert(first ? waiting_.begin() : waiting_.end(), std::move(work));
    Start(due);
  }
  void EndExclusive(DueList& due) {
    exclusive_ = false;
    Start(due);
  }
  bool exclusive() const { return exclusive_; }

 private:
  void Start(DueList& due) {
    if (uses_ == 0 && !exclusive_ && !waiting_.empty()) {
      exclusive_ = true;
      due.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
  }

  int uses_ = 0;
  bool exclusive_ = false;
  std::deque<std::function<void()>> waiting_;
};

}  // namespace weir

#endif  // SERVER_PS_ROWS_ROW_USES_H_
