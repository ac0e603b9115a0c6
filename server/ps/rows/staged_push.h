// One contribution to the tables of a shard while it comes in.
//
// Place: RowPush (server/ps/store/store.h) owns it. TableGroup fills it piece
// by piece and applies it whole.
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

struct StagedPush {
  Sender sender;
  ::weir::Push push;
  std::vector<StagedRows> rows;
  std::vector<TableRate> rates;
  OutOfOrderBudget::Room room;  // for `rows`
  bool begun = false;           // a piece has come
  bool unknown_list = false;    // a piece named a list that is not here
  bool deferred = false;        // there was no room: nothing of it is kept
  int bad_table = -1;           // the first with NaN or Inf

  // Keeps nothing of the rows, and gives their room back.
  void Drop() {
    rows.clear();
    room.GiveBack();
  }
};

}  // namespace weir

#endif  // SERVER_PS_ROWS_STAGED_PUSH_H_
