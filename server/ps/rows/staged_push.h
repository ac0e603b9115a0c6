// One contribution to the tables of a shard.
//
// Place: RowPush (server/ps/store/store.h) owns it while it comes in;
// TableGroup keeps its rows meanwhile (open_pushes.h) and applies it whole.
#ifndef SERVER_PS_ROWS_STAGED_PUSH_H_
#define SERVER_PS_ROWS_STAGED_PUSH_H_

#include <cstdint>
#include <vector>

#include "proto/ps.pb.h"
#include "server/ps/block/block_buffer.h"
#include "server/ps/block/out_of_order_budget.h"
#include "server/ps/rows/id_list_cache.h"

namespace weir {

// Gradients of one list of rows, decoded.
struct StagedRows {
  int table = 0;
  Ids ids;
  BlockRef gradients;  // of all lists of one message
  int64_t first = 0;   // where this list's gradients [ids, dim] begin in it

  const char* data() const {
    return reinterpret_cast<const char*>(gradients.data() + first);
  }
};

// The room that a list takes while it is staged: its gradients, its ids, and
// what it takes beside them.
inline uint64_t StagedBytes(const Ids& ids, int dim) {
  return ids->size() * static_cast<uint64_t>(dim) * sizeof(float) +
         static_cast<uint64_t>(BytesOf(ids));
}

struct StagedPush {
  Sender sender;
  ::weir::Push push;
  uint64_t number = 0;  // of OpenPushes
  // Empty until the last piece has come.
  std::vector<StagedRows> rows;
  OutOfOrderBudget::Room room;  // for `rows`
  std::vector<TableRate> rates;
  bool begun = false;         // a piece has come
  bool unknown_list = false;  // a piece named a list that is not here
  bool deferred = false;      // there was no room: nothing of it is kept
  int bad_table = -1;         // the first with NaN or Inf
};

}  // namespace weir

#endif  // SERVER_PS_ROWS_STAGED_PUSH_H_
