// The loader, and Weir's prototypes against cuDNN's own headers where they are:
//   g++ -std=c++20 -fsyntax-only -I. -I$CUDNN_INCLUDE -I$CUDA_HOME/include
//     -Wno-deprecated-declarations tests/worker/compute/cuda/cudnn_api_test.cc
#include "worker/compute/cuda/cudnn_api.h"

#include <cstddef>
#include <type_traits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#if __has_include(<cudnn.h>)
#include <cudnn.h>
#endif

namespace weir::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Status LoadError(const std::string& library) {
  return LoadCudnn(library).status();
}

TEST(CudnnApiTest, SaysWhyALibraryCannotBeOpened) {
  const absl::Status status = LoadError("libno_such_cudnn.so.9");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("libno_such_cudnn.so.9"));
}

TEST(CudnnApiTest, RefusesALibraryThatLacksAFunction) {
  const absl::Status status = LoadError("libm.so.6");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("libm.so.6"), HasSubstr("cudnnGetVersion")));
}

std::string Stub(const std::string& name) {
  return "tests/worker/compute/cuda/" + name;
}

TEST(CudnnApiTest, RefusesAnotherMajorVersion) {
  for (const char* name : {"libstub_cudnn8.so", "libstub_cudnn10.so"}) {
    const absl::Status status = LoadError(Stub(name));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("not of 9.x"));
  }
}

// The stub's functions give the numbers of their lines.
TEST(CudnnApiTest, FindsEveryFunctionByItsName) {
  const auto api = LoadCudnn(Stub("libstub_cudnn9.so"));
  ASSERT_TRUE(api.ok()) << api.status();
  EXPECT_EQ(api->get_version(), 91501u);
  EXPECT_EQ(std::string(api->get_error_string(0)), "text");
  int next = 0;
  const auto call = [](auto function) {
    // By the type that the stub's functions have.
    void* const address = reinterpret_cast<void*>(function);
    return reinterpret_cast<int (*)()>(address)();
  };
  for (const int number : {call(api->create),
                           call(api->destroy),
                           call(api->set_stream),
                           call(api->create_tensor),
                           call(api->destroy_tensor),
                           call(api->set_tensor),
                           call(api->create_filter),
                           call(api->destroy_filter),
                           call(api->set_filter),
                           call(api->create_window),
                           call(api->destroy_window),
                           call(api->set_window),
                           call(api->set_math),
                           call(api->advise_forward),
                           call(api->advise_backward_data),
                           call(api->advise_backward_filter),
                           call(api->forward_workspace),
                           call(api->backward_data_workspace),
                           call(api->backward_filter_workspace),
                           call(api->forward),
                           call(api->backward_data),
                           call(api->backward_filter)}) {
    EXPECT_EQ(number, ++next);
  }
}

#ifdef CUDNN_VERSION
// Enums are ints and pointers are pointers on both sides.
template <class T>
using Plain =
    std::conditional_t<std::is_enum_v<T>, int,
                       std::conditional_t<std::is_pointer_v<T>, void*, T>>;
template <class F>
struct Signature;
template <class R, class... A>
struct Signature<R (*)(A...)> {
  using Type = Plain<R>(Plain<A>...);
};
template <class A, class B>
constexpr bool kSame =
    std::is_same_v<typename Signature<A>::Type, typename Signature<B>::Type>;
template <class Theirs>
constexpr bool kAdviceIs =
    sizeof(Theirs) == sizeof(CudnnAdvice) &&
    offsetof(Theirs, algo) == offsetof(CudnnAdvice, algorithm) &&
    offsetof(Theirs, status) == offsetof(CudnnAdvice, status) &&
    offsetof(Theirs, time) == offsetof(CudnnAdvice, milliseconds) &&
    offsetof(Theirs, memory) == offsetof(CudnnAdvice, workspace_bytes) &&
    offsetof(Theirs, determinism) == offsetof(CudnnAdvice, determinism) &&
    offsetof(Theirs, mathType) == offsetof(CudnnAdvice, math);

#define WEIR_SAME(ours, theirs) \
  static_assert(kSame<decltype(CudnnApi::ours), decltype(&theirs)>)
WEIR_SAME(get_version, cudnnGetVersion);
WEIR_SAME(get_error_string, cudnnGetErrorString);
WEIR_SAME(create, cudnnCreate);
WEIR_SAME(destroy, cudnnDestroy);
WEIR_SAME(set_stream, cudnnSetStream);
WEIR_SAME(create_tensor, cudnnCreateTensorDescriptor);
WEIR_SAME(destroy_tensor, cudnnDestroyTensorDescriptor);
WEIR_SAME(set_tensor, cudnnSetTensor4dDescriptor);
WEIR_SAME(create_filter, cudnnCreateFilterDescriptor);
WEIR_SAME(destroy_filter, cudnnDestroyFilterDescriptor);
WEIR_SAME(set_filter, cudnnSetFilter4dDescriptor);
WEIR_SAME(create_window, cudnnCreateConvolutionDescriptor);
WEIR_SAME(destroy_window, cudnnDestroyConvolutionDescriptor);
WEIR_SAME(set_window, cudnnSetConvolution2dDescriptor);
WEIR_SAME(set_math, cudnnSetConvolutionMathType);
WEIR_SAME(advise_forward, cudnnGetConvolutionForwardAlgorithm_v7);
WEIR_SAME(advise_backward_data, cudnnGetConvolutionBackwardDataAlgorithm_v7);
WEIR_SAME(advise_backward_filter,
          cudnnGetConvolutionBackwardFilterAlgorithm_v7);
WEIR_SAME(forward_workspace, cudnnGetConvolutionForwardWorkspaceSize);
WEIR_SAME(backward_data_workspace,
          cudnnGetConvolutionBackwardDataWorkspaceSize);
WEIR_SAME(backward_filter_workspace,
          cudnnGetConvolutionBackwardFilterWorkspaceSize);
WEIR_SAME(forward, cudnnConvolutionForward);
WEIR_SAME(backward_data, cudnnConvolutionBackwardData);
WEIR_SAME(backward_filter, cudnnConvolutionBackwardFilter);
#undef WEIR_SAME

static_assert(sizeof(cudnnStatus_t) == sizeof(int));
static_assert(sizeof(cudnnMathType_t) == sizeof(int));
static_assert(sizeof(cudnnDeterminism_t) == sizeof(int));
static_assert(kAdviceIs<cudnnConvolutionFwdAlgoPerf_t>);
static_assert(kAdviceIs<cudnnConvolutionBwdDataAlgoPerf_t>);
static_assert(kAdviceIs<cudnnConvolutionBwdFilterAlgoPerf_t>);
static_assert(CUDNN_MAJOR == kCudnnMajor);
static_assert(CUDNN_STATUS_SUCCESS == kCudnnSuccess);
static_assert(CUDNN_DATA_FLOAT == kCudnnFloat);
static_assert(CUDNN_TENSOR_NHWC == kCudnnNhwc);
static_assert(CUDNN_CROSS_CORRELATION == kCudnnCrossCorrelation);
static_assert(CUDNN_DETERMINISTIC == kCudnnDeterministic);
static_assert(CUDNN_DEFAULT_MATH == kCudnnDefaultMath);
static_assert(CUDNN_TENSOR_OP_MATH == kCudnnTensorOpMath);
static_assert(CUDNN_FMA_MATH == kCudnnFmaMath);
static_assert(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM ==
              kCudnnForwardDirect[0]);
static_assert(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM ==
              kCudnnForwardDirect[1]);
static_assert(CUDNN_CONVOLUTION_FWD_ALGO_GEMM == kCudnnForwardDirect[2]);
static_assert(CUDNN_CONVOLUTION_FWD_ALGO_DIRECT == kCudnnForwardDirect[3]);
static_assert(CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 == kCudnnBackwardDataDirect[0]);
static_assert(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 == kCudnnBackwardDataDirect[1]);
static_assert(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 ==
              kCudnnBackwardFilterDirect[0]);
static_assert(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 ==
              kCudnnBackwardFilterDirect[1]);
static_assert(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3 ==
              kCudnnBackwardFilterDirect[2]);
#endif

}  // namespace
}  // namespace weir::cuda
