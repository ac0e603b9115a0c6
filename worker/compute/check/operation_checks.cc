#include "worker/compute/check/operation_checks.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "worker/compute/check/check_run.h"

namespace weir {
namespace {

// Device memory for the buffers of one shape: 16 and 128 MiB.
constexpr int64_t kRoom = int64_t{4} << 20;
constexpr int64_t kRoomLarge = int64_t{32} << 20;

}  // namespace

const std::vector<OperationCheck>& OperationChecks() {
  static const auto* checks = [] {
    auto* all = new std::vector<OperationCheck>;
    for (const std::vector<OperationCheck>& some :
         {ProductChecks(), PointwiseChecks(), RowChecks(), SparseChecks(),
          MemoryChecks()}) {
      all->insert(all->end(), some.begin(), some.end());
    }
    return all;
  }();
  return *checks;
}

std::vector<CheckResult> RunCheck(const OperationCheck& check, Backend* backend,
                                  const CheckOptions& options) {
  int64_t elements = kRoom;
  if (options.large) {
    elements = kRoomLarge;
  }
  const absl::StatusOr<float*> room = backend->Allocate(elements);
  if (!room.ok()) {
    // A check never ends without a result.
    return {{check.name, absl::StrCat(elements, " floats"), 1.0, 0.0,
             absl::StrCat("no device memory: ", room.status().message()),
             false}};
  }
  // I1, I2: the run draws all inputs and guards all buffers.
  CheckRun run(check.name, backend, options, *room, elements);
  check.run(&run);
  std::vector<CheckResult> results = run.Finish();
  backend->Release(*room);
  return results;
}

}  // namespace weir
