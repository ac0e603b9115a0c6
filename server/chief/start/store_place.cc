#include "server/chief/start/store_place.h"

#include <algorithm>
#include <vector>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/io/files.h"

namespace weir {
namespace {

constexpr char kCheckpointsName[] = "checkpoints";

// A place with names in it is a run's if it has checkpoints, whatever else
// somebody may have put beside them.
absl::Status CheckNothingElseIsThere(ObjectStore* store,
                                     const std::string& place) {
  const absl::StatusOr<std::vector<std::string>> names = store->List(place);
  if (absl::IsNotFound(names.status())) {
    return absl::OkStatus();
  }
  WEIR_RETURN_IF_ERROR(names.status());
  const bool of_a_run =
      std::find(names->begin(), names->end(), kCheckpointsName) != names->end();
  if (of_a_run || names->empty()) {
    return absl::OkStatus();
  }
  return Invalid(place, " holds '", Printable(names->front()),
                 "' and no run: name a prefix of its own by --checkpoints");
}

}  // namespace

absl::Status CheckStorePlace(ObjectStore* store, const std::string& place,
                             bool allow_unguarded) {
  WEIR_RETURN_IF_ERROR(CheckNothingElseIsThere(store, place));
  const absl::Status guarded =
      CheckWriteNew(store, JoinPath(place, kCheckpointsName));
  if (!absl::IsFailedPrecondition(guarded)) {
    return guarded;
  }
  return allow_unguarded
             ? absl::OkStatus()
             : Invalid(guarded.message(), "; --allow_unguarded takes the risk");
}

}  // namespace weir
