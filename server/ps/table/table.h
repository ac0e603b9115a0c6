// An embedding table in memory: rows found by any 64-bit id, made at the first
// touch, updated by an optimizer of their own.
//
// Place: one shard's part of one table of a job. Knows no wire, no worker and
// no files; a checkpoint is Export to a writer and Import from a reader.
//
// Terms
//   row      values [dim] and the optimizer's state, in one piece of memory.
//   touch    a training lookup or an update of an id.
//   clock    a number that the caller sets: steps or seconds. Rows remember
//            its low 32 bits (row_age.h).
//   stripe   the rows whose hash begins with its number, under one lock.
//
// Invariants
//   I1. A row begins with initial values that are a pure function of
//       (seed, id, column); an id without a row reads the same.
//   I2. What the table holds is a function of the calls: of each id alone,
//       without a memory budget and with admission kAlways; of the ids of its
//       stripe otherwise. Neither shard count nor threads matter to values.
//   I3. Report().bytes is never above memory_bytes_max.
//   I4. No call holds a lock for longer than 64 rows of a batch or one segment
//       (some 600 rows) take, growth included. Memory for new rows is asked for
//       without a lock.
//   I5. A row that was dropped, for whatever reason, leaves nothing behind but
//       its count in the admission filter.
// Threads: safe. Calls on one row are one after another; those on rows of one
//   batch are not one transaction.
// Errors: INVALID_ARGUMENT  an id of another shard; nothing was changed.
// Cost: docs/performance.md, "Embedding tables".
// See "Embedding tables" in docs/design_notes.md.
#ifndef SERVER_PS_TABLE_TABLE_H_
#define SERVER_PS_TABLE_TABLE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/row_records.h"
#include "server/ps/table/row_optimizer.h"
#include "server/ps/table/table_options.h"
#include "server/ps/table/table_stripe.h"

namespace weir {

// Where Export goes on; starts at the beginning.
struct ExportCursor {
  uint64_t hash = 0;
  bool done = false;
};

// Gradients of rows: dim little-endian floats for each id, at any address.
struct RowGradients {
  std::span<const uint64_t> ids;
  const char* gradients = nullptr;
};

struct UpdateReceipt {
  int64_t applied = 0;
  int64_t not_admitted = 0;  // no row, and none was made
  int64_t not_finite = 0;    // NaN or Inf in the gradient; row left alone
};

struct ShrinkOptions {
  uint32_t age_max = 0;   // in units of the clock; 0: whatever the age
  int64_t rows_max = -1;  // least recent or frequent go first; -1: no bound
};

struct ShrinkReceipt {
  int64_t rows = 0;   // dropped
  int64_t bytes = 0;  // given back
};

struct HotRow {
  uint64_t id = 0;
  uint32_t updates = 0;
  bool operator==(const HotRow&) const = default;
};

struct TableFigures {
  int64_t rows = 0;
  int64_t bytes = 0;          // of rows, index and filter
  int64_t payload_bytes = 0;  // values and state of `rows`
  StripeCounts counts;        // since the table was made
  std::vector<HotRow> hot;    // most updates first, then by id
};

class Table {
 public:
  static absl::StatusOr<std::unique_ptr<Table>> Create(TableOptions options);
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  const TableOptions& options() const { return options_; }
  int row_floats() const { return optimizer_->row_floats(options_.dim); }

  // The clock of the touches that follow; it stays where it is rather than go
  // back. REQUIRES: one caller at a time.
  void SetClock(uint64_t now);
  uint64_t clock() const { return clock_.load(std::memory_order_relaxed); }
  // Does a bounded part of looking for rows whose age would soon not fit into
  // what they keep of the clock. To be called some times a second, by one
  // caller at a time.
  void LimitAges();

  // The optimizer's t: calls of Update so far; a checkpoint keeps it.
  uint64_t step() const { return step_.load(std::memory_order_relaxed); }
  void SetStep(uint64_t step) { step_.store(step, std::memory_order_relaxed); }

  // Writes values to out [ids, dim], row-major. kRead changes nothing; kTrain
  // touches.
  enum class Mode : int { kRead, kTrain };
  absl::Status Lookup(std::span<const uint64_t> ids, Mode mode, float* out);

  struct RowState {
    uint32_t touched = 0;
    uint32_t updates = 0;
    bool exists = false;
  };
  // Copies whole rows to `rows` [ids, row_floats], row-major, and what else is
  // known of each to `states` [ids]; changes nothing. Of an id without a row
  // only the values are defined: its initial ones. REQUIRES: the ids are of
  // this shard.
  void ReadWhole(std::span<const uint64_t> ids, float* rows, RowState* states);

  // INVALID_ARGUMENT when an id is of another shard.
  absl::Status CheckShard(std::span<const uint64_t> ids) const;

  // Moves each row by its gradient. An id that comes twice moves twice: to sum
  // its gradients is the caller's business. Counts as one step, even without
  // ids. REQUIRES: learning_rate finite and >= 0.
  absl::StatusOr<UpdateReceipt> Update(std::span<const RowGradients> pieces,
                                       double learning_rate);
  absl::StatusOr<UpdateReceipt> Update(std::span<const uint64_t> ids,
                                       const char* gradients,
                                       double learning_rate) {
    const RowGradients piece = {ids, gradients};
    return Update({&piece, 1}, learning_rate);
  }

  // Replaces `out` by the next rows, some 600 at most and maybe none; false
  // after the last. Rows come in the order of IndexHash, which depends on the
  // ids alone. Each row is whole; a row that lives throughout the export comes
  // exactly once, in its state at some moment of it.
  bool Export(ExportCursor* cursor, RowRecords* out);
  // Says how many rows the next Imports bring.
  void ExpectRows(int64_t rows);
  // Puts rows in, or replaces them; whatever the admission policy says.
  // Errors: INVALID_ARGUMENT    as above, or arrays that do not fit together.
  //         RESOURCE_EXHAUSTED  the budget has no room for a single row, or the
  //                             ids were chosen to crowd the index; some are
  //                             in.
  absl::Status Import(const RowRecords& rows);

  // Drops rows and gives their memory back (the index keeps its own). Expired
  // ones go whatever the options say.
  ShrinkReceipt Shrink(const ShrinkOptions& options);

  // Visits every row if hot_count > 0.
  TableFigures Report(int hot_count);

 private:
  using Access = TableStripe::Access;
  // A piece of a batch, sorted by stripe (table.cc).
  struct Piece;

  Table(TableOptions options, std::unique_ptr<RowOptimizer> optimizer);

  int StripeOf(uint64_t hash) const {
    // Two shifts: skip_bits may be 0.
    return static_cast<int>(hash >> (63 - context_.skip_bits) >> 1);
  }
  uint64_t FirstHash(int s) const {
    return static_cast<uint64_t>(s) << (63 - context_.skip_bits) << 1;
  }
  TableStripe& stripe(int s) { return *stripes_[static_cast<size_t>(s)]; }
  void Sort(std::span<const uint64_t> ids, const char* left_out, Piece* piece);
  // Calls use(stripe, window) for the windows of the piece, when their memory
  // is on its way to the cache. Holds no lock then.
  template <class Use>
  void ForEachWindow(Piece* piece, Access access, const Use& use);
  // The first `floats` of each row to out [ids, floats]; `states` may be null.
  void LookupAll(std::span<const uint64_t> ids, Access access, size_t floats,
                 float* out, RowState* states);
  void LookupPiece(std::span<const uint64_t> ids, Access access, size_t floats,
                   float* out, RowState* states);
  void UpdatePiece(std::span<const uint64_t> ids, const char* gradients,
                   const RowStep& step, UpdateReceipt* receipt);
  // Replaces `rows` by those of the segment at `cursor`, whose stripe is
  // `part`, and moves the cursor behind it.
  void TakeSegment(TableStripe& part, ExportCursor* cursor,
                   std::vector<RowHeader*>* rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(part.mutex());
  // Calls `visit` with each segment's rows, under the stripe's lock.
  void VisitSegments(
      int s,
      const std::function<void(TableStripe*, std::vector<RowHeader*>*)>& visit);
  // Each drops rows of stripe s and returns how many: those for which
  // drop(stripe, row) holds, those that are too old, those beyond rows_max.
  template <class Drop>
  int64_t DropIf(int s, int64_t StripeCounts::*counter, const Drop& drop);
  int64_t DropByAge(int s, uint32_t age_max, int64_t StripeCounts::*counter);
  int64_t DropToCount(int s, int64_t rows_max);

  // The part of the clock that rows keep.
  uint32_t RowClock() const { return static_cast<uint32_t>(clock()); }

  const TableOptions options_;
  const std::unique_ptr<RowOptimizer> optimizer_;
  StripeContext context_;
  std::vector<std::unique_ptr<TableStripe>> stripes_;
  std::atomic<uint64_t> clock_ = 0;
  // LimitAges: where it is, and the clock at which it last began.
  ExportCursor limit_ = {0, true};
  uint64_t limit_began_ = 0;
  std::atomic<uint64_t> step_ = 0;
};

}  // namespace weir

#endif  // SERVER_PS_TABLE_TABLE_H_
