// A pull of rows: what is kept of it while it waits, and how its answer is
// made.
//
// Place: TableGroup decides when a lookup may be answered; these only copy.
//
// Errors: RESOURCE_EXHAUSTED  there is no memory for the rows.
// Threads: safe, as the tables are. While rows are copied nothing may move them
//   (row_uses.h).
#ifndef SERVER_PS_ROWS_ROW_LOOKUP_H_
#define SERVER_PS_ROWS_ROW_LOOKUP_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/ps.pb.h"
#include "server/ps/block/block_buffer.h"
#include "server/ps/consistency/consistency_mode.h"
#include "server/ps/rows/answer_budget.h"
#include "server/ps/rows/id_list_cache.h"
#include "server/ps/table/rows_before.h"
#include "server/ps/table/table.h"

namespace weir {

// The answer to one PullRowsChunk. `header` is complete but for incarnation.
struct PulledRows {
  RowChunk header;
  BlockRef rows;     // holds the payload; null: none
  size_t bytes = 0;  // of the payload
};
using PullRowsDone = std::function<void(absl::StatusOr<PulledRows>)>;

struct RowLookup {
  PullRowsChunk request;  // its lists name their tables only
  std::vector<Ids> ids;   // of each list
  PullRowsDone done;
  int64_t floats = 0;  // of all its rows

  // That it holds while it waits.
  int64_t bytes() const;
  // Of its answer's payload.
  int64_t answer_bytes() const;
};

// A lookup that may be answered: where its rows are, and the room for them.
struct RowReading {
  Readable from;
  AnswerBudget::Room room;
};

// Where rows are read; all are borrowed, and by table.
struct RowSources {
  const std::vector<std::unique_ptr<Table>>& tables;
  const std::vector<RowsBefore>& before;
  std::vector<std::atomic<uint64_t>>& looked_up;  // counts rows
  Arena* arena;  // of memory that clients on this host map
};

// REQUIRES: `ids` are those of the lists of `request`, which were checked.
RowLookup MakeLookup(const Declaration& declaration,
                     const PullRowsChunk& request, std::vector<Ids> ids,
                     PullRowsDone done);

// Copies the rows, as float32; null: there are none.
absl::StatusOr<BlockRef> CopyRows(const RowSources& sources,
                                  const RowLookup& lookup,
                                  const RowReading& reading);
// Brings what CopyRows returned into the form in which it leaves.
absl::StatusOr<BlockRef> EncodeRows(const RowSources& sources,
                                    const RowLookup& lookup,
                                    const RowReading& reading, BlockRef rows);

}  // namespace weir

#endif  // SERVER_PS_ROWS_ROW_LOOKUP_H_
