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
  opened.Find("cudnnCreateTensorDescriptor", &api.create_tensor);
  opened.Find("cudnnDestroyTensorDescriptor", &api.destroy_tensor);
  opened.Find("cudnnSetTensor4dDescriptor", &api.set_tensor);
  opened.Find("cudnnCreateFilterDescriptor", &api.create_filter);
  opened.Find("cudnnDestroyFilterDescriptor", &api.destroy_filter);
  opened.Find("cudnnSetFilter4dDescriptor", &api.set_filter);
  opened.Find("cudnnCreateConvolutionDescriptor", &api.create_window);
  opened.Find("cudnnDestroyConvolutionDescriptor", &api.destroy_window);
  opened.Find("cudnnSetConvolution2dDescriptor", &api.set_window);
  opened.Find("cudnnSetConvolutionMathType", &api.set_math);
  opened.Find("cudnnGetConvolutionForwardAlgorithm_v7", &api.advise_forward);
  opened.Find("cudnnGetConvolutionBackwardDataAlgorithm_v7",
              &api.advise_backward_data);
  opened.Find("cudnnGetConvolutionBackwardFilterAlgorithm_v7",
              &api.advise_backward_filter);
  opened.Find("cudnnGetConvolutionForwardWorkspaceSize",
              &api.forward_workspace);
  opened.Find("cudnnGetConvolutionBackwardDataWorkspaceSize",
              &api.backward_data_workspace);
  opened.Find("cudnnGetConvolutionBackwardFilterWorkspaceSize",
              &api.backward_filter_workspace);
  opened.Find("cudnnConvolutionForward", &api.forward);
  opened.Find("cudnnConvolutionBackwardData", &api.backward_data);
  opened.Find("cudnnConvolutionBackwardFilter", &api.backward_filter);
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
