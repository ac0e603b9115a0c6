// Which requests for rows can be served at all. These are decisions: they
// change nothing and depend on the declaration alone.
//
// Place: TableGroup asks before it looks at ids, marks or memory.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT   the request is wrong by itself; names the field.
//         PERMISSION_DENIED  a reader asks to train.
#ifndef SERVER_PS_ROWS_ROW_CHECKS_H_
#define SERVER_PS_ROWS_ROW_CHECKS_H_

#include "absl/status/status.h"
#include "proto/ps.pb.h"
#include "server/ps/rows/staged_push.h"

namespace weir {

// Checks tables, encoding and size of an answer. Does not look at the ids.
absl::Status CheckPullRows(const Declaration& declaration,
                           const PullRowsChunk& request);

// Checks one piece of `update`, which may have begun with earlier pieces:
// weight, learning rates, and that it is the same contribution.
absl::Status CheckPushPiece(const Declaration& declaration,
                            const PushRowsChunk& chunk,
                            const StagedPush& update);

}  // namespace weir

#endif  // SERVER_PS_ROWS_ROW_CHECKS_H_
