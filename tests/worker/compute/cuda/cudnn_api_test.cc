// The loader, and Weir's prototypes against cuDNN's own headers where they are:
//   g++ -std=c++20 -fsyntax-only -I. -I$CUDNN_INCLUDE -I$CUDA_HOME/include
//     -Wno-deprecated-declarations tests/worker/compute/cuda/cudnn_api_test.cc
#include "worker/compute/cuda/cudnn_api.h"

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
  for (const int number :
       {call(api->create), call(api->destroy), call(api->set_stream),
        call(api->create_node), call(api->destroy_node),
        call(api->set_attribute), call(api->get_attribute), call(api->finalize),
        call(api->execute)}) {
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
#define WEIR_SAME(ours, theirs) \
  static_assert(kSame<decltype(CudnnApi::ours), decltype(&theirs)>)
WEIR_SAME(get_version, cudnnGetVersion);
WEIR_SAME(get_error_string, cudnnGetErrorString);
WEIR_SAME(create, cudnnCreate);
WEIR_SAME(destroy, cudnnDestroy);
WEIR_SAME(set_stream, cudnnSetStream);
WEIR_SAME(create_node, cudnnBackendCreateDescriptor);
WEIR_SAME(destroy_node, cudnnBackendDestroyDescriptor);
WEIR_SAME(set_attribute, cudnnBackendSetAttribute);
WEIR_SAME(get_attribute, cudnnBackendGetAttribute);
WEIR_SAME(finalize, cudnnBackendFinalize);
WEIR_SAME(execute, cudnnBackendExecute);
#undef WEIR_SAME

// Ours on the left, cuDNN's on the right.
template <class Ours, class Theirs>
constexpr bool Equal(Ours ours, Theirs theirs) {
  static_assert(!std::is_enum_v<Theirs> || sizeof(Theirs) == sizeof(int));
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(Equal(kCudnnMajor, CUDNN_MAJOR));
static_assert(Equal(kCudnnSuccess, CUDNN_STATUS_SUCCESS));
static_assert(Equal(kCudnnFloat, CUDNN_DATA_FLOAT));
static_assert(Equal(kCudnnBfloat16, CUDNN_DATA_BFLOAT16));
static_assert(Equal(kCudnnCrossCorrelation, CUDNN_CROSS_CORRELATION));
static_assert(Equal(kCudnnAdd, CUDNN_POINTWISE_ADD));
static_assert(Equal(kCudnnFallback, CUDNN_HEUR_MODE_FALLBACK));
static_assert(Equal(kCudnnHeuristics, CUDNN_HEUR_MODE_A));
static_assert(Equal(kCudnnTensorCore, CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
static_assert(Equal(kCudnnDownConverts,
                    CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS));
static_assert(Equal(kCudnnReducedSums,
                    CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION));
static_assert(Equal(kCudnnNondeterministic,
                    CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
static_assert(Equal(kCudnnPointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
static_assert(Equal(kCudnnConvolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
static_assert(Equal(kCudnnEngine, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
static_assert(Equal(kCudnnEngineConfig, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
static_assert(Equal(kCudnnEngineHeuristics,
                    CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
static_assert(Equal(kCudnnPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
static_assert(Equal(kCudnnForwardOperation,
                    CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR));
static_assert(
    Equal(kCudnnBackwardKernelOperation,
          CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR));
static_assert(
    Equal(kCudnnBackwardDataOperation,
          CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR));
static_assert(Equal(kCudnnPointwiseOperation,
                    CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
static_assert(Equal(kCudnnGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
static_assert(Equal(kCudnnPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
static_assert(Equal(kCudnnTensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR));
static_assert(Equal(kCudnnHandleValue, CUDNN_TYPE_HANDLE));
static_assert(Equal(kCudnnDataTypeValue, CUDNN_TYPE_DATA_TYPE));
static_assert(Equal(kCudnnBooleanValue, CUDNN_TYPE_BOOLEAN));
static_assert(Equal(kCudnnInt64Value, CUDNN_TYPE_INT64));
static_assert(Equal(kCudnnFloatValue, CUDNN_TYPE_FLOAT));
static_assert(Equal(kCudnnPointerValue, CUDNN_TYPE_VOID_PTR));
static_assert(Equal(kCudnnConvolutionModeValue, CUDNN_TYPE_CONVOLUTION_MODE));
static_assert(Equal(kCudnnHeuristicsModeValue, CUDNN_TYPE_HEUR_MODE));
static_assert(Equal(kCudnnNoteValue, CUDNN_TYPE_NUMERICAL_NOTE));
static_assert(Equal(kCudnnPointwiseModeValue, CUDNN_TYPE_POINTWISE_MODE));
static_assert(Equal(kCudnnNodeValue, CUDNN_TYPE_BACKEND_DESCRIPTOR));
static_assert(Equal(kCudnnPointwiseMode, CUDNN_ATTR_POINTWISE_MODE));
static_assert(Equal(kCudnnPointwisePrecision, CUDNN_ATTR_POINTWISE_MATH_PREC));
static_assert(Equal(kCudnnConvolutionType, CUDNN_ATTR_CONVOLUTION_COMP_TYPE));
static_assert(Equal(kCudnnConvolutionMode, CUDNN_ATTR_CONVOLUTION_CONV_MODE));
static_assert(Equal(kCudnnConvolutionDilations,
                    CUDNN_ATTR_CONVOLUTION_DILATIONS));
static_assert(Equal(kCudnnConvolutionStrides,
                    CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES));
static_assert(Equal(kCudnnConvolutionPaddingAfter,
                    CUDNN_ATTR_CONVOLUTION_POST_PADDINGS));
static_assert(Equal(kCudnnConvolutionPaddingBefore,
                    CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS));
static_assert(Equal(kCudnnConvolutionDimensions,
                    CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS));
static_assert(Equal(kCudnnHeuristicsMode, CUDNN_ATTR_ENGINEHEUR_MODE));
static_assert(Equal(kCudnnHeuristicsGraph,
                    CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
static_assert(Equal(kCudnnHeuristicsResults, CUDNN_ATTR_ENGINEHEUR_RESULTS));
static_assert(Equal(kCudnnConfigEngine, CUDNN_ATTR_ENGINECFG_ENGINE));
static_assert(Equal(kCudnnPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE));
static_assert(Equal(kCudnnPlanConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
static_assert(Equal(kCudnnPlanWorkspaceSize,
                    CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
static_assert(Equal(kCudnnForwardAlpha,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA));
static_assert(Equal(kCudnnForwardBeta,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA));
static_assert(Equal(kCudnnForwardConvolution,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC));
static_assert(Equal(kCudnnForwardKernel,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W));
static_assert(Equal(kCudnnForwardX,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X));
static_assert(Equal(kCudnnForwardY,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y));
static_assert(Equal(kCudnnBackwardDataAlpha,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA));
static_assert(Equal(kCudnnBackwardDataBeta,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA));
static_assert(Equal(kCudnnBackwardDataConvolution,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC));
static_assert(Equal(kCudnnBackwardDataKernel,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W));
static_assert(Equal(kCudnnBackwardDataDx,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX));
static_assert(Equal(kCudnnBackwardDataDy,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY));
static_assert(Equal(kCudnnBackwardKernelAlpha,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA));
static_assert(Equal(kCudnnBackwardKernelBeta,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA));
static_assert(Equal(kCudnnBackwardKernelConvolution,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC));
static_assert(Equal(kCudnnBackwardKernelDkernel,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW));
static_assert(Equal(kCudnnBackwardKernelX,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X));
static_assert(Equal(kCudnnBackwardKernelDy,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY));
static_assert(Equal(kCudnnPointwiseDescriptor,
                    CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR));
static_assert(Equal(kCudnnPointwiseX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
static_assert(Equal(kCudnnPointwiseB, CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
static_assert(Equal(kCudnnPointwiseY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
static_assert(Equal(kCudnnGraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE));
static_assert(Equal(kCudnnGraphOperations, CUDNN_ATTR_OPERATIONGRAPH_OPS));
static_assert(Equal(kCudnnTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT));
static_assert(Equal(kCudnnTensorType, CUDNN_ATTR_TENSOR_DATA_TYPE));
static_assert(Equal(kCudnnTensorDimensions, CUDNN_ATTR_TENSOR_DIMENSIONS));
static_assert(Equal(kCudnnTensorStrides, CUDNN_ATTR_TENSOR_STRIDES));
static_assert(Equal(kCudnnTensorId, CUDNN_ATTR_TENSOR_UNIQUE_ID));
static_assert(Equal(kCudnnTensorIsVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL));
static_assert(Equal(kCudnnPackIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS));
static_assert(Equal(kCudnnPackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS));
static_assert(Equal(kCudnnPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE));
static_assert(Equal(kCudnnEngineIndex, CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
static_assert(Equal(kCudnnEngineNotes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE));
#endif

}  // namespace
}  // namespace weir::cuda
