#include <memory>

#include "server/ps/consistency/async.h"
#include "server/ps/consistency/bounded_staleness.h"
#include "server/ps/consistency/consistency_mode.h"
#include "server/ps/consistency/lock_free.h"
#include "server/ps/consistency/sync.h"

namespace weir {

std::unique_ptr<UpdateMode> CreateUpdateMode(ShardContext* context) {
  switch (context->plan->kind()) {
    case UpdateKind::kAsync:
      return std::make_unique<AsyncMode>(context);
    case UpdateKind::kLockFree:
      return std::make_unique<LockFreeMode>(context);
    case UpdateKind::kSync:
      return std::make_unique<SyncMode>(context);
    case UpdateKind::kBoundedStaleness:
      return std::make_unique<BoundedStalenessMode>(context);
  }
  return nullptr;
}

}  // namespace weir
