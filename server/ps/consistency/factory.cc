#include <memory>

#include "server/ps/consistency/async.h"
#include "server/ps/consistency/bounded_staleness.h"
#include "server/ps/consistency/consistency_mode.h"
#include "server/ps/consistency/lock_free.h"
#include "server/ps/consistency/sync.h"

namespace weir {

std::unique_ptr<ConsistencyMode> CreateConsistencyMode(ShardContext* context) {
  // No default: a new kind without a member here fails to compile.
  switch (context->plan->kind()) {
    case ConsistencyKind::kAsync:
      return std::make_unique<AsyncMode>(context);
    case ConsistencyKind::kLockFree:
      return std::make_unique<LockFreeMode>(context);
    case ConsistencyKind::kSync:
      return std::make_unique<SyncMode>(context);
    case ConsistencyKind::kBoundedStaleness:
      return std::make_unique<BoundedStalenessMode>(context);
  }
  return nullptr;
}

}  // namespace weir
