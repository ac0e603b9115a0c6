// The few functions of cuDNN 9 that Weir calls, as pointers that are found at
// run time.
//
// Place: CudnnGraph calls them: those of the graph API ("backend API"), which
// has every engine of cuDNN. Nothing links cuDNN, so that Weir builds without
// it and computes on a machine without it.
//
// Invariants
//   I1. Prototypes, constants and layouts are those of cuDNN 9.15.1's headers;
//       tests/worker/compute/cuda/cudnn_api_test.cc compares them where the
//       headers are installed.
// Threads: LoadCudnn is safe; for the functions see cuDNN's manual.
#ifndef WORKER_COMPUTE_CUDA_CUDNN_API_H_
#define WORKER_COMPUTE_CUDA_CUDNN_API_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace weir::cuda {

// cuDNN's opaque types.
struct CudnnContext;
struct CudnnNode;  // a backend descriptor

// cuDNN's enums are ints.
constexpr int kCudnnMajor = 9;
constexpr int kCudnnSuccess = 0;
constexpr int kCudnnFloat = 0;
constexpr int kCudnnBfloat16 = 9;
constexpr int kCudnnCrossCorrelation = 1;
constexpr int kCudnnAdd = 0;  // a pointwise mode
// Whose advice: the heuristics', or engines that should work where those fail.
constexpr int kCudnnFallback = 2;
constexpr int kCudnnHeuristics = 3;

// What an engine says of its arithmetic.
constexpr int kCudnnTensorCore = 0;  // on float32: rounds factors to TF32
constexpr int kCudnnDownConverts = 1;
constexpr int kCudnnReducedSums = 2;
constexpr int kCudnnNondeterministic = 4;

// Kinds of descriptors.
enum CudnnKind : int {
  kCudnnPointwise = 0,
  kCudnnConvolution = 1,
  kCudnnEngine = 2,
  kCudnnEngineConfig = 3,
  kCudnnEngineHeuristics = 4,
  kCudnnPlan = 5,
  kCudnnForwardOperation = 10,
  kCudnnBackwardKernelOperation = 11,
  kCudnnBackwardDataOperation = 12,
  kCudnnPointwiseOperation = 13,
  kCudnnGraph = 15,
  kCudnnPack = 16,
  kCudnnTensor = 17,
};

// The types of attributes' values.
enum CudnnType : int {
  kCudnnHandleValue = 0,
  kCudnnDataTypeValue = 1,
  kCudnnBooleanValue = 2,
  kCudnnInt64Value = 3,
  kCudnnFloatValue = 4,
  kCudnnPointerValue = 6,
  kCudnnConvolutionModeValue = 7,
  kCudnnHeuristicsModeValue = 8,
  kCudnnNoteValue = 11,
  kCudnnPointwiseModeValue = 14,
  kCudnnNodeValue = 15,
};

// Attributes, by the kind of descriptor that has them.
enum CudnnAttribute : int {
  kCudnnPointwiseMode = 0,
  kCudnnPointwisePrecision = 1,
  kCudnnConvolutionType = 100,
  kCudnnConvolutionMode = 101,
  kCudnnConvolutionDilations = 102,
  kCudnnConvolutionStrides = 103,
  kCudnnConvolutionPaddingAfter = 104,
  kCudnnConvolutionPaddingBefore = 105,
  kCudnnConvolutionDimensions = 106,
  kCudnnHeuristicsMode = 200,
  kCudnnHeuristicsGraph = 201,
  kCudnnHeuristicsResults = 202,
  kCudnnConfigEngine = 300,
  kCudnnPlanHandle = 400,
  kCudnnPlanConfig = 401,
  kCudnnPlanWorkspaceSize = 402,
  kCudnnForwardAlpha = 700,
  kCudnnForwardBeta = 701,
  kCudnnForwardConvolution = 702,
  kCudnnForwardKernel = 703,
  kCudnnForwardX = 704,
  kCudnnForwardY = 705,
  kCudnnBackwardDataAlpha = 706,
  kCudnnBackwardDataBeta = 707,
  kCudnnBackwardDataConvolution = 708,
  kCudnnBackwardDataKernel = 709,
  kCudnnBackwardDataDx = 710,
  kCudnnBackwardDataDy = 711,
  kCudnnBackwardKernelAlpha = 712,
  kCudnnBackwardKernelBeta = 713,
  kCudnnBackwardKernelConvolution = 714,
  kCudnnBackwardKernelDkernel = 715,
  kCudnnBackwardKernelX = 716,
  kCudnnBackwardKernelDy = 717,
  kCudnnPointwiseDescriptor = 750,
  kCudnnPointwiseX = 751,
  kCudnnPointwiseB = 752,
  kCudnnPointwiseY = 753,
  kCudnnGraphHandle = 800,
  kCudnnGraphOperations = 801,
  kCudnnTensorAlignment = 900,
  kCudnnTensorType = 901,
  kCudnnTensorDimensions = 902,
  kCudnnTensorStrides = 903,
  kCudnnTensorId = 906,
  kCudnnTensorIsVirtual = 907,
  kCudnnPackIds = 1000,
  kCudnnPackPointers = 1001,
  kCudnnPackWorkspace = 1003,
  kCudnnEngineIndex = 1301,
  kCudnnEngineNotes = 1303,
};

struct CudnnApi {
  size_t (*get_version)() = nullptr;
  const char* (*get_error_string)(int status) = nullptr;
  int (*create)(CudnnContext** context) = nullptr;
  int (*destroy)(CudnnContext* context) = nullptr;
  int (*set_stream)(CudnnContext* context, cudaStream_t stream) = nullptr;

  // A descriptor is a bag of attributes: it is made, filled, and finalized,
  // which checks it. Values that are descriptors are given and read as arrays
  // of CudnnNode*.
  int (*create_node)(int kind, CudnnNode** node) = nullptr;
  int (*destroy_node)(CudnnNode* node) = nullptr;
  int (*set_attribute)(CudnnNode* node, int attribute, int type, int64_t count,
                       const void* values) = nullptr;
  // Writes at most `capacity` values, and to `count` how many there are. What
  // is read into must be a descriptor of the right kind that was made before.
  int (*get_attribute)(CudnnNode* node, int attribute, int type,
                       int64_t capacity, int64_t* count,
                       void* values) = nullptr;
  int (*finalize)(CudnnNode* node) = nullptr;
  int (*execute)(CudnnContext* context, CudnnNode* plan,
                 CudnnNode* pack) = nullptr;
};

inline constexpr char kCudnnLibrary[] = "libcudnn.so.9";
// Stands in the place of a library: do not use one.
inline constexpr char kNoCudnn[] = "none";

// Opens `library`, which stays open.
// Errors: NOT_FOUND            it cannot be opened; says why.
//         FAILED_PRECONDITION  it is not cuDNN 9; names the version or the
//                              function that it lacks.
absl::StatusOr<CudnnApi> LoadCudnn(const std::string& library);

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_CUDNN_API_H_
