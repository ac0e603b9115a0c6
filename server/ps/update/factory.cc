#include <memory>

#include "server/ps/update/async.h"
#include "server/ps/update/bounded_staleness.h"
#include "server/ps/update/lock_free.h"
#include "server/ps/update/sync.h"
#include "server/ps/update/update_mode.h"

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
