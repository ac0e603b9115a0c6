// One stripe of a table: the rows whose hash begins with its number, and which
// of them to keep.
//
// Place: under Table, which sorts a batch by stripe and holds the lock for a
// stripe's part.
//
// Terms
//   touch    a training lookup or an update of an id.
//
// Invariants
//   I1. bytes() never exceeds the stripe's share of the memory budget.
//   I2. What an insertion does beside its own row is bounded: it splits one
//       segment, or drops a sixteenth of one.
// Threads: all but the constructor under mutex().
#ifndef SERVER_PS_TABLE_TABLE_STRIPE_H_
#define SERVER_PS_TABLE_TABLE_STRIPE_H_

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/job/row_age.h"
#include "common/math/random.h"
#include "server/ps/table/admission_filter.h"
#include "server/ps/table/row_index.h"
#include "server/ps/table/row_optimizer.h"
#include "server/ps/table/row_slab.h"
#include "server/ps/table/table_options.h"

namespace weir {

// Constants that all stripes of a table share.
struct StripeContext {
  const TableOptions* options = nullptr;
  const RowOptimizer* optimizer = nullptr;
  uint64_t init_key = 0;
  int skip_bits = 0;      // log2 of the stripes
  int64_t bytes_max = 0;  // for each stripe
};

struct StripeCounts {
  int64_t created = 0;
  int64_t evicted = 0;       // by the memory budget
  int64_t expired = 0;       // by age
  int64_t not_admitted = 0;  // touches without a row
  int64_t shrunk = 0;        // by Shrink's rows_max
};

class TableStripe {
 public:
  enum class Access : int {
    kRead,    // changes nothing
    kTrain,   // touches, counts for admission, makes rows
    kUpdate,  // touches, makes rows of ids that have been admitted
  };

  TableStripe(const StripeContext* context, int stripe);

  Mutex& mutex() ABSL_LOCK_RETURNED(mutex_) { return mutex_; }

  // Starts loading what a search for the hashes reads first.
  void FetchIndex(const uint64_t* hashes, int count) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts loading what are probably the rows, as far as `access` reads them,
  // and puts them in rows[0..count). Waits for the index. Returns the epoch.
  int64_t FetchRows(Access access, const uint64_t* hashes, int count,
                    RowHeader** rows) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Finds or makes the rows of ids[0..count); null where there is none. The
  // pointers hold until the lock is given up. hashes[i] = IndexHash(ids[i]).
  // `rows` and `epoch` come from FetchRows of the same hashes.
  void Resolve(Access access, const uint64_t* ids, const uint64_t* hashes,
               int count, uint32_t now, int64_t epoch, RowHeader** rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if an insertion might have to ask for memory. Any thread.
  bool IsLow() const { return low_.load(std::memory_order_relaxed); }
  // Gets memory for the next rows and the next segment without the lock: the
  // system may take long to find the pages.
  void MakeRoom() ABSL_LOCKS_EXCLUDED(mutex_);
  // See RowIndex::Expect.
  void Expect(int64_t rows) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    index_.Expect(rows);
  }
  // The row of an id that is admitted whatever the policy; its floats are
  // unspecified if it is new. Null: the budget has no room for a single row, or
  // the index none for one of its hash.
  RowHeader* ForceRow(uint64_t id, uint64_t hash, uint32_t now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Appends the rows themselves where RowIndex::RowsAt appends their numbers.
  uint64_t RowsAt(uint64_t hash, std::vector<RowHeader*>* rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The first to go has the smallest. Comparable for one `now`.
  std::pair<uint64_t, uint64_t> EvictionKey(const RowHeader& row,
                                            uint32_t now) const;
  bool IsExpired(const RowHeader& row, uint32_t age_max, uint32_t now) const {
    return age_max != 0 && RowAge(now, row.touched) > age_max;
  }
  // REQUIRES: the row is this stripe's. Counts in `counter` of counts().
  void Drop(uint64_t id, int64_t StripeCounts::*counter)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives one chunk of memory back; false when there is nothing to give.
  bool ReleaseChunk() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  int64_t rows() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return index_.rows();
  }
  int64_t bytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return slab_.bytes() + index_.bytes() + filter_.bytes() + reserved_;
  }
  const StripeCounts& counts() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return counts_;
  }

 private:
  // `row`: FindRow(id, hash).
  RowHeader* ResolveOne(Access access, uint64_t id, uint64_t hash, uint32_t now,
                        RowHeader* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The row with that number; null for RowIndex::kNone.
  RowHeader* At(uint32_t row) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  RowHeader* FindRow(uint64_t id, uint64_t hash)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsAdmitted(Access access, uint64_t hash)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes sure that one row more fits; false if it cannot. Throws
  // std::bad_alloc where the budget would allow what the arena has not.
  bool MakeRoomFor(uint64_t hash, uint32_t now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Room for one row, or null.
  RowHeader* NewRow(uint64_t id, uint64_t hash, uint32_t now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Affords(int64_t more) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return context_->bytes_max == 0 || bytes() + more <= context_->bytes_max;
  }
  bool WantsChunk() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool WantsSegment() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops what should go first of the segment of `hash`, or of another if that
  // is empty. False: the stripe is empty.
  bool Evict(uint64_t hash, uint32_t now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const StripeContext* const context_;
  const uint64_t first_hash_;

  Mutex mutex_;
  RowSlab slab_ ABSL_GUARDED_BY(mutex_);
  RowIndex index_ ABSL_GUARDED_BY(mutex_);
  AdmissionFilter filter_ ABSL_GUARDED_BY(mutex_);
  RandomStream random_ ABSL_GUARDED_BY(mutex_);
  StripeCounts counts_ ABSL_GUARDED_BY(mutex_);
  // Changes when a row goes, or goes elsewhere.
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  // The bytes that MakeRoom is asking for; not 0 while a thread is in it.
  int64_t reserved_ ABSL_GUARDED_BY(mutex_) = 0;

  std::atomic<bool> low_ = true;
};

}  // namespace weir

#endif  // SERVER_PS_TABLE_TABLE_STRIPE_H_
