// Hogwild without locks around the arithmetic.
//
// Place: update.async.lock_free. As AsyncMode, but several pushes may add to
// one block at once.
//
// Terms
//   claim  a push that has its mark and is still adding.
//
// Invariants
//   I1. Marks, versions and step counts are exact: they are taken under the
//       lock, before the arithmetic.
//   I2. Single additions may be lost (common/math/simd.h); a pull may see a
//       block in the middle of an update.
//   I3. A snapshot holds whole updates only: it waits for open claims, and the
//       next push replaces the buffers that it holds.
// Source: Niu, Recht, Re, Wright, "Hogwild!", NIPS 2011.
#ifndef SERVER_PS_CONSISTENCY_LOCK_FREE_H_
#define SERVER_PS_CONSISTENCY_LOCK_FREE_H_

#include "server/ps/consistency/async.h"

namespace weir {

class LockFreeMode : public AsyncMode {
 public:
  explicit LockFreeMode(ShardContext* context) : AsyncMode(context) {}

  absl::StatusOr<Receipt> Push(Block& block, BlockGradient gradient,
                               DueList& due) override;
};

}  // namespace weir

#endif  // SERVER_PS_CONSISTENCY_LOCK_FREE_H_
