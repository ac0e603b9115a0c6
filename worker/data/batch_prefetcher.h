// Prepares the next batches while the worker computes.
//
// Place: between Batches and the train loop; one thread.
//
// Invariants
//   I1. Get gives the batches of the contributions that next() returns, in the
//       same order.
//   I2. At most kReadyMax batches are ready or being made.
//   I3. After an error or the end, next() is not called again.
// Threads: Get from one thread. Borrows `batches`. `next` runs on the
//   prefetcher's thread and must return soon: the destructor waits for it.
#ifndef WORKER_DATA_BATCH_PREFETCHER_H_
#define WORKER_DATA_BATCH_PREFETCHER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/threads/thread.h"
#include "worker/data/batches.h"

namespace weir {

class BatchPrefetcher {
 public:
  // One to compute on next, and one in case that a batch takes longer to make.
  static constexpr size_t kReadyMax = 2;

  // Returns the next contribution, or nothing at the end.
  using Next = std::function<std::optional<int64_t>()>;

  // Starts at once. `batches` outlives this.
  BatchPrefetcher(const Batches* batches, Next next);
  ~BatchPrefetcher();
  BatchPrefetcher(const BatchPrefetcher&) = delete;
  BatchPrefetcher& operator=(const BatchPrefetcher&) = delete;

  // Waits for the next batch and swaps it into *batch, whose vectors are used
  // again. Returns false at the end, with *batch unchanged. An error of the
  // data set comes in the place of its batch, and again from then on.
  absl::StatusOr<bool> Get(Batch* batch);
  // Whether Get would return a batch at once.
  bool ready();

 private:
  void Run();

  const Batches* const batches_;
  const Next next_;  // called by thread_ only

  Mutex mutex_;  // protects all below
  CondVar changed_;
  std::deque<Batch> ready_ ABSL_GUARDED_BY(mutex_);
  std::deque<Batch> free_ ABSL_GUARDED_BY(mutex_);  // vectors to use again
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // the thread adds no more
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;

  Thread thread_;  // last: it uses everything above
};

}  // namespace weir

#endif  // WORKER_DATA_BATCH_PREFETCHER_H_
