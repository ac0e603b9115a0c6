// The answers that the store gives later, and the functions that take them.
//
// Place: between the store, which parks, and the service, which answers.
#ifndef SERVER_PS_BLOCK_CONTINUATIONS_H_
#define SERVER_PS_BLOCK_CONTINUATIONS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/ps.pb.h"
#include "server/ps/block/block_buffer.h"

namespace weir {

// The answer to one want.
struct PulledBlock {
  int block = 0;
  uint64_t version = 0;
  bool not_yet = false;  // the deadline passed first; no values
  BlockRef values;       // f32, the whole block
  bool has_buffers = false;
  bool may_change = false;  // lock_free: pushes go on writing to `values`
};

using PullDone = std::function<void(absl::StatusOr<PulledBlock>)>;
using SnapshotDone = std::function<void(absl::StatusOr<SnapshotReply>)>;

// Continuations that became due under a lock; run after it is dropped.
using DueList = std::vector<std::function<void()>>;

}  // namespace weir

#endif  // SERVER_PS_BLOCK_CONTINUATIONS_H_
