#include "worker/compute/cuda/nccl_api.h"

#include "common/base/status.h"
#include "worker/compute/shared_library.h"

namespace weir::cuda {

std::string NcclVersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".",
                      version % 100);
}

absl::StatusOr<NcclApi> LoadNccl(const std::string& library) {
  WEIR_ASSIGN_OR_RETURN(SharedLibrary opened, SharedLibrary::Open(library));
  NcclApi api;
  // I1 makes the prototypes right.
  opened.Find("ncclGetVersion", &api.get_version);
  opened.Find("ncclGetErrorString", &api.get_error_string);
  opened.Find("ncclCommInitAll", &api.init_all);
  opened.Find("ncclCommDestroy", &api.destroy);
  opened.Find("ncclCommAbort", &api.abort);
  opened.Find("ncclGroupStart", &api.group_start);
  opened.Find("ncclGroupEnd", &api.group_end);
  opened.Find("ncclReduce", &api.reduce);
  if (opened.missing() != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(library, " is no NCCL: it has no ", opened.missing()));
  }
  // 22703 is 2.27.3. Up to 2.8 a version had four digits, so those are refused
  // as well as 3.0 and later, whose prototypes may be others (I1).
  int version = 0;
  if (api.get_version(&version) != kNcclSuccess ||
      version / 10000 != kNcclMajor) {
    return absl::FailedPreconditionError(
        absl::StrCat(library, " is NCCL of version ", version,
                     ", not of 2.9 or newer, below 3"));
  }
  opened.LeaveOpen();
  return api;
}

}  // namespace weir::cuda
