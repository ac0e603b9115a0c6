// A library with the names that cudnn_api_test looks for: each gives its place
// in the list.
#include <cstddef>

// NOLINTBEGIN(readability-identifier-naming): cuDNN's names.
extern "C" {

size_t cudnnGetVersion() { return STUB_VERSION; }
const char* cudnnGetErrorString(int) { return "text"; }

#define STUB(name, place) \
  int name() { return place; }
STUB(cudnnCreate, 1)
STUB(cudnnDestroy, 2)
STUB(cudnnSetStream, 3)
STUB(cudnnCreateTensorDescriptor, 4)
STUB(cudnnDestroyTensorDescriptor, 5)
STUB(cudnnSetTensor4dDescriptor, 6)
STUB(cudnnCreateFilterDescriptor, 7)
STUB(cudnnDestroyFilterDescriptor, 8)
STUB(cudnnSetFilter4dDescriptor, 9)
STUB(cudnnCreateConvolutionDescriptor, 10)
STUB(cudnnDestroyConvolutionDescriptor, 11)
STUB(cudnnSetConvolution2dDescriptor, 12)
STUB(cudnnSetConvolutionMathType, 13)
STUB(cudnnGetConvolutionForwardAlgorithm_v7, 14)
STUB(cudnnGetConvolutionBackwardDataAlgorithm_v7, 15)
STUB(cudnnGetConvolutionBackwardFilterAlgorithm_v7, 16)
STUB(cudnnGetConvolutionForwardWorkspaceSize, 17)
STUB(cudnnGetConvolutionBackwardDataWorkspaceSize, 18)
STUB(cudnnGetConvolutionBackwardFilterWorkspaceSize, 19)
STUB(cudnnConvolutionForward, 20)
STUB(cudnnConvolutionBackwardData, 21)
STUB(cudnnConvolutionBackwardFilter, 22)
#undef STUB

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
