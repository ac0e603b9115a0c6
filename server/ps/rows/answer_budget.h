// How many bytes of rows were gathered for lookups and have not left yet.
//
// Place: TableGroup takes room before it gathers. The rows hold it (BlockRef),
// so it comes back when the transport has sent them, or has dropped them.
//
// Terms
//   sender  a slot in one generation, or all readers together: they hold no
//           slot, so nothing tells one from another.
//
// Invariants
//   I1. A sender that holds nothing always has room for one answer, so nobody
//       waits for ever because another one does not read.
//   I2. Beyond that answer a sender's bytes stay within `per_sender`, and those
//       of all senders within `all`.
// Threads: safe.
#ifndef SERVER_PS_ROWS_ANSWER_BUDGET_H_
#define SERVER_PS_ROWS_ANSWER_BUDGET_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/base/limits.h"
#include "common/base/mutex.h"
#include "proto/ps.pb.h"

namespace weir {

class AnswerBudget : public std::enable_shared_from_this<AnswerBudget> {
 public:
  // Bytes of one answer; they are given back when the last copy goes, on any
  // thread. It may outlive everything but its arena.
  using Room = std::shared_ptr<const void>;

  // REQUIRES: a std::shared_ptr owns the budget.
  explicit AnswerBudget(int64_t per_sender = kRowAnswerBytesPerSender,
                        int64_t all = kRowAnswerBytesMax)
      : per_sender_(per_sender), all_(all) {}

  // Null: there is no room now.
  Room Take(const Sender& sender, int64_t bytes);

  int64_t used() const;

 private:
  using Key = std::pair<uint32_t, uint32_t>;  // slot, generation

  void GiveBack(const Key& key, int64_t bytes);

  const int64_t per_sender_;
  const int64_t all_;
  mutable Mutex mutex_;
  int64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<Key, int64_t> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // SERVER_PS_ROWS_ANSWER_BUDGET_H_
