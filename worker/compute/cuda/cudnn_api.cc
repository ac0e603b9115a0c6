#include "worker/compute/cuda/cudnn_api.h"

#include "common/base/status.h"
#include "worker/compute/shared_library.h"

namespace weir::cuda {

absl::StatusOr<CudnnApi> LoadCudnn(const std::string& library) {
  WEIR_ASSIGN_OR_RETURN(SharedLibrary opened, SharedLibrary::Open(library));
  CudnnApi api;
  // I1 makes the prototypes right.
  opened.Find("cudnnGetVersion", &api.get_version);
  opened.Find("cudnnGetErrorString", &api.get_error_string);
  opened.Find("cudnnCreate", &api.create);
  opened.Find("cudnnDestroy", &api.destroy);
  opened.Find("cudnnSetStream", &api.set_stream);
  opened.Find("cudnnBackendCreateDescriptor", &api.create_node);
  opened.Find("cudnnBackendDestroyDescriptor", &api.destroy_node);
  opened.Find("cudnnBackendSetAttribute", &api.set_attribute);
  opened.Find("cudnnBackendGetAttribute", &api.get_attribute);
  opened.Find("cudnnBackendFinalize", &api.finalize);
  opened.Find("cudnnBackendExecute", &api.execute);
  if (opened.missing() != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(library, " is no cuDNN 9: it has no ", opened.missing()));
  }
  // I1 holds for one major version; another one may change prototypes. 91501 is
  // 9.15.1.
  const size_t version = api.get_version();
  if (version / 10000 != kCudnnMajor) {
    return absl::FailedPreconditionError(absl::StrCat(
        library, " is cuDNN of version ", version, ", not of 9.x"));
  }
  opened.LeaveOpen();
  return api;
}

}  // namespace weir::cuda
