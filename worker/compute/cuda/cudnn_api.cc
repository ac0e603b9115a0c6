#include "worker/compute/cuda/cudnn_api.h"

#include <dlfcn.h>

#include <type_traits>

#include "absl/strings/str_cat.h"

namespace weir::cuda {

absl::StatusOr<CudnnApi> LoadCudnn(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    // glibc keeps it for each thread. NOLINTNEXTLINE(concurrency-mt-unsafe)
    const char* const why = dlerror();
    if (why != nullptr) {
      return absl::NotFoundError(why);
    }
    return absl::NotFoundError(absl::StrCat("cannot open ", library));
  }
  CudnnApi api;
  // I1 makes this cast right: dlsym() knows a name but no prototype. The first
  // name that is missing says best what the library is not.
  const char* missing = nullptr;
  const auto find = [&](const char* symbol, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(
        dlsym(handle, symbol));
    if (*function == nullptr && missing == nullptr) {
      missing = symbol;
    }
  };
  find("cudnnGetVersion", &api.get_version);
  find("cudnnGetErrorString", &api.get_error_string);
  find("cudnnCreate", &api.create);
  find("cudnnDestroy", &api.destroy);
  find("cudnnSetStream", &api.set_stream);
  find("cudnnCreateTensorDescriptor", &api.create_tensor);
  find("cudnnDestroyTensorDescriptor", &api.destroy_tensor);
  find("cudnnSetTensor4dDescriptor", &api.set_tensor);
  find("cudnnCreateFilterDescriptor", &api.create_filter);
  find("cudnnDestroyFilterDescriptor", &api.destroy_filter);
  find("cudnnSetFilter4dDescriptor", &api.set_filter);
  find("cudnnCreateConvolutionDescriptor", &api.create_window);
  find("cudnnDestroyConvolutionDescriptor", &api.destroy_window);
  find("cudnnSetConvolution2dDescriptor", &api.set_window);
  find("cudnnSetConvolutionMathType", &api.set_math);
  find("cudnnGetConvolutionForwardAlgorithm_v7", &api.advise_forward);
  find("cudnnGetConvolutionBackwardDataAlgorithm_v7",
       &api.advise_backward_data);
  find("cudnnGetConvolutionBackwardFilterAlgorithm_v7",
       &api.advise_backward_filter);
  find("cudnnGetConvolutionForwardWorkspaceSize", &api.forward_workspace);
  find("cudnnGetConvolutionBackwardDataWorkspaceSize",
       &api.backward_data_workspace);
  find("cudnnGetConvolutionBackwardFilterWorkspaceSize",
       &api.backward_filter_workspace);
  find("cudnnConvolutionForward", &api.forward);
  find("cudnnConvolutionBackwardData", &api.backward_data);
  find("cudnnConvolutionBackwardFilter", &api.backward_filter);
  if (missing != nullptr) {
    dlclose(handle);
    return absl::FailedPreconditionError(
        absl::StrCat(library, " is no cuDNN 9: it has no ", missing));
  }
  // I1 holds for one major version; another one may change prototypes. 91501 is
  // 9.15.1.
  const size_t version = api.get_version();
  if (version / 10000 != kCudnnMajor) {
    dlclose(handle);
    return absl::FailedPreconditionError(absl::StrCat(
        library, " is cuDNN of version ", version, ", not of 9.x"));
  }
  return api;
}

}  // namespace weir::cuda
