// The few functions of cuDNN 9 that Weir calls, as pointers that are found at
// run time.
//
// Place: CudnnConvolution calls them. Nothing links cuDNN, so that Weir builds
// without it and computes on a machine without it.
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
#include <string>

#include "absl/status/statusor.h"

namespace weir::cuda {

// cuDNN's opaque types.
struct CudnnContext;
struct CudnnTensor;
struct CudnnFilter;
struct CudnnWindow;  // its convolution descriptor

// cuDNN's enums are ints.
constexpr int kCudnnMajor = 9;
constexpr int kCudnnSuccess = 0;
constexpr int kCudnnFloat = 0;
constexpr int kCudnnNhwc = 1;
constexpr int kCudnnCrossCorrelation = 1;
constexpr int kCudnnDeterministic = 1;
// Kinds of arithmetic. On float32 the default and tensor operations may round
// factors to TF32; fused multiply-add may not. ALLOW_CONVERSION (2) may go down
// to float16 and is never asked for.
constexpr int kCudnnDefaultMath = 0;
constexpr int kCudnnTensorOpMath = 1;
constexpr int kCudnnFmaMath = 3;
// Algorithms that add products as they are. The others transform first (FFT,
// Winograd), which loses digits and spreads a NaN.
constexpr int kCudnnForwardDirect[] = {0, 1, 2, 3};
constexpr int kCudnnBackwardDataDirect[] = {0, 1};
constexpr int kCudnnBackwardFilterDirect[] = {0, 1, 3};

// One line of what cuDNN advises, which is sorted, the fastest first. It has
// the layout of cuDNN's three ...AlgoPerf_t.
struct CudnnAdvice {
  int algorithm;
  int status;
  float milliseconds;
  size_t workspace_bytes;
  int determinism;
  int math;
  int reserved[3];
};

struct CudnnApi {
  size_t (*get_version)() = nullptr;
  const char* (*get_error_string)(int status) = nullptr;
  int (*create)(CudnnContext** context) = nullptr;
  int (*destroy)(CudnnContext* context) = nullptr;
  int (*set_stream)(CudnnContext* context, cudaStream_t stream) = nullptr;

  int (*create_tensor)(CudnnTensor** tensor) = nullptr;
  int (*destroy_tensor)(CudnnTensor* tensor) = nullptr;
  int (*set_tensor)(CudnnTensor* tensor, int format, int type, int batch,
                    int channels, int height, int width) = nullptr;
  int (*create_filter)(CudnnFilter** filter) = nullptr;
  int (*destroy_filter)(CudnnFilter* filter) = nullptr;
  int (*set_filter)(CudnnFilter* filter, int type, int format, int filters,
                    int channels, int height, int width) = nullptr;
  int (*create_window)(CudnnWindow** window) = nullptr;
  int (*destroy_window)(CudnnWindow* window) = nullptr;
  int (*set_window)(CudnnWindow* window, int padding_height, int padding_width,
                    int stride_height, int stride_width, int dilation_height,
                    int dilation_width, int mode, int type) = nullptr;
  int (*set_math)(CudnnWindow* window, int math) = nullptr;

  int (*advise_forward)(CudnnContext* context, const CudnnTensor* x,
                        const CudnnFilter* kernel, const CudnnWindow* window,
                        const CudnnTensor* y, int requested, int* returned,
                        CudnnAdvice* advice) = nullptr;
  int (*advise_backward_data)(CudnnContext* context, const CudnnFilter* kernel,
                              const CudnnTensor* dy, const CudnnWindow* window,
                              const CudnnTensor* dx, int requested,
                              int* returned, CudnnAdvice* advice) = nullptr;
  int (*advise_backward_filter)(CudnnContext* context, const CudnnTensor* x,
                                const CudnnTensor* dy,
                                const CudnnWindow* window,
                                const CudnnFilter* dkernel, int requested,
                                int* returned, CudnnAdvice* advice) = nullptr;

  int (*forward_workspace)(CudnnContext* context, const CudnnTensor* x,
                           const CudnnFilter* kernel, const CudnnWindow* window,
                           const CudnnTensor* y, int algorithm,
                           size_t* bytes) = nullptr;
  int (*backward_data_workspace)(CudnnContext* context,
                                 const CudnnFilter* kernel,
                                 const CudnnTensor* dy,
                                 const CudnnWindow* window,
                                 const CudnnTensor* dx, int algorithm,
                                 size_t* bytes) = nullptr;
  int (*backward_filter_workspace)(CudnnContext* context, const CudnnTensor* x,
                                   const CudnnTensor* dy,
                                   const CudnnWindow* window,
                                   const CudnnFilter* dkernel, int algorithm,
                                   size_t* bytes) = nullptr;

  // result = alpha * convolution + beta * result; at beta = 0 the result is not
  // read. alpha and beta are floats of the host.
  int (*forward)(CudnnContext* context, const void* alpha, const CudnnTensor* x,
                 const void* x_data, const CudnnFilter* kernel,
                 const void* kernel_data, const CudnnWindow* window,
                 int algorithm, void* workspace, size_t workspace_bytes,
                 const void* beta, const CudnnTensor* y,
                 void* y_data) = nullptr;
  int (*backward_data)(CudnnContext* context, const void* alpha,
                       const CudnnFilter* kernel, const void* kernel_data,
                       const CudnnTensor* dy, const void* dy_data,
                       const CudnnWindow* window, int algorithm,
                       void* workspace, size_t workspace_bytes,
                       const void* beta, const CudnnTensor* dx,
                       void* dx_data) = nullptr;
  int (*backward_filter)(CudnnContext* context, const void* alpha,
                         const CudnnTensor* x, const void* x_data,
                         const CudnnTensor* dy, const void* dy_data,
                         const CudnnWindow* window, int algorithm,
                         void* workspace, size_t workspace_bytes,
                         const void* beta, const CudnnFilter* dkernel,
                         void* dkernel_data) = nullptr;
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
