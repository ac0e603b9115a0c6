#include "tests/worker/compute/cuda/emulator/fake_cudnn.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "tests/worker/compute/cuda/emulator/scheduler.h"

namespace weir::cuda {

struct CudnnContext {
  int device = 0;
  cudaStream_t stream = nullptr;
};

// Tensors and filters alike: of filters, n counts them.
struct CudnnTensor {
  int format = -1;  // not set
  int type = -1;
  int64_t n = 0;
  int64_t c = 0;
  int64_t h = 0;
  int64_t w = 0;

  int64_t elements() const { return n * c * h * w; }
  int64_t At(int64_t image, int64_t row, int64_t column,
             int64_t channel) const {
    return ((image * h + row) * w + column) * c + channel;
  }
};
struct CudnnFilter : CudnnTensor {};

struct CudnnWindow {
  int padding = -1;  // not set
  int stride = 0;
  int math = kCudnnDefaultMath;
};

}  // namespace weir::cuda

namespace weir_emulator {
namespace {

using weir::cuda::CudnnAdvice;
using weir::cuda::CudnnContext;
using weir::cuda::CudnnFilter;
using weir::cuda::CudnnTensor;
using weir::cuda::CudnnWindow;
using weir::cuda::kCudnnSuccess;

constexpr int64_t kFloatBytes = sizeof(float);

struct State {
  std::vector<CudnnAdvice> advice;
  CudnnCounts counts;
};
State& Fake() {
  static State state;
  return state;
}

// An injected failure of `function`, else what `body` says.
template <class Body>
int Guard(const char* function, Body body) {
  int status = kCudnnSuccess;
  const cudaError_t error = Call(function, [&](Machine& machine) {
    status = body(machine);
    return cudaSuccess;
  });
  return error != cudaSuccess ? kCudnnExecutionFailed : status;
}

// ------------------------------------------------------------- descriptors

template <class T>
int Create(const char* function, T** made) {
  return Guard(function, [&](Machine&) {
    *made = new T;
    ++Fake().counts.open;
    return kCudnnSuccess;
  });
}

template <class T>
int Destroy(T* made) {
  if (made == nullptr) {
    return kCudnnBadParam;
  }
  delete made;
  --Fake().counts.open;
  return kCudnnSuccess;
}

int SetExtents(CudnnTensor* tensor, int format, int type, int n, int c, int h,
               int w) {
  if (tensor == nullptr || std::min({n, c, h, w}) < 1) {
    return kCudnnBadParam;
  }
  if (format != weir::cuda::kCudnnNhwc || type != weir::cuda::kCudnnFloat) {
    return kCudnnNotSupported;
  }
  *tensor = {format, type, n, c, h, w};
  return kCudnnSuccess;
}

int SetWindow(CudnnWindow* window, int padding_height, int padding_width,
              int stride_height, int stride_width, int dilation_height,
              int dilation_width, int mode, int type) {
  if (window == nullptr || padding_height < 0 || stride_height < 1) {
    return kCudnnBadParam;
  }
  if (padding_width != padding_height || stride_width != stride_height ||
      dilation_height != 1 || dilation_width != 1 ||
      mode != weir::cuda::kCudnnCrossCorrelation ||
      type != weir::cuda::kCudnnFloat) {
    return kCudnnNotSupported;
  }
  window->padding = padding_height;
  window->stride = stride_height;
  return kCudnnSuccess;
}

// -------------------------------------------------------------- convolution

// One of the three operations: `result` from `a` and `b`.
struct Job {
  enum class Kind { kForward, kBackwardData, kBackwardFilter };

  CudnnTensor x, y;
  CudnnFilter kernel;
  CudnnWindow window;
  Kind kind = Kind::kForward;
  const float* a = nullptr;
  const float* b = nullptr;
  float* result = nullptr;
  float alpha = 1.0f;
  float beta = 0.0f;
  bool rounds = false;
  bool jitters = false;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;

  int Check() const;
  void Run(Random* random) const;
  int64_t results() const {
    switch (kind) {
      case Kind::kForward:
        return y.elements();
      case Kind::kBackwardData:
        return x.elements();
      default:
        return kernel.elements();
    }
  }
  const CudnnTensor& SideA() const {
    return kind == Kind::kBackwardData ? kernel : x;
  }
  const CudnnTensor& SideB() const {
    return kind == Kind::kForward ? kernel : y;
  }

 private:
  template <class F>
  void ForEachProduct(F f) const;
};

int Job::Check() const {
  for (const CudnnTensor* tensor :
       {&x, &y, static_cast<const CudnnTensor*>(&kernel)}) {
    if (tensor->format < 0) {
      return kCudnnBadParam;
    }
  }
  const auto out = [this](int64_t in, int64_t size) {
    return (in + 2 * window.padding - size) / window.stride + 1;
  };
  if (window.padding < 0 || x.n != y.n || x.c != kernel.c || y.c != kernel.n ||
      y.h != out(x.h, kernel.h) || y.w != out(x.w, kernel.w)) {
    return kCudnnBadParam;
  }
  return kCudnnSuccess;
}

// f(index into x, into y, into the kernel).
template <class F>
void Job::ForEachProduct(F f) const {
  for (int64_t image = 0; image < y.n; ++image) {
    for (int64_t out = 0; out < y.h * y.w; ++out) {
      for (int64_t tap = 0; tap < kernel.h * kernel.w; ++tap) {
        const int64_t row =
            out / y.w * window.stride - window.padding + tap / kernel.w;
        const int64_t column =
            out % y.w * window.stride - window.padding + tap % kernel.w;
        if (row < 0 || row >= x.h || column < 0 || column >= x.w) {
          continue;
        }
        for (int64_t filter = 0; filter < y.c; ++filter) {
          for (int64_t channel = 0; channel < x.c; ++channel) {
            f(x.At(image, row, column, channel),
              y.At(image, out / y.w, out % y.w, filter),
              kernel.At(filter, tap / kernel.w, tap % kernel.w, channel));
          }
        }
      }
    }
  }
}

// To nearest, ties away: 10 bits of mantissa.
float ToTf32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return value - value != 0.0f
             ? value
             : std::bit_cast<float>((bits + 0x1000u) & ~0x1fffu);
}

void Job::Run(Random* random) const {
  // I3: what a caller keeps in the workspace is lost.
  if (workspace_bytes > 0) {
    std::memset(workspace, 0xff, workspace_bytes);
  }
  std::vector<double> sums(static_cast<size_t>(results()));
  const auto product = [this](int64_t i, int64_t j) {
    return rounds ? static_cast<double>(ToTf32(a[i])) * ToTf32(b[j])
                  : static_cast<double>(a[i]) * b[j];
  };
  ForEachProduct([&](int64_t in, int64_t out, int64_t tap) {
    switch (kind) {
      case Kind::kForward:
        sums[static_cast<size_t>(out)] += product(in, tap);
        return;
      case Kind::kBackwardData:
        sums[static_cast<size_t>(in)] += product(tap, out);
        return;
      case Kind::kBackwardFilter:
        sums[static_cast<size_t>(tap)] += product(in, out);
        return;
    }
  });
  for (size_t i = 0; i < sums.size(); ++i) {
    // I1: more than the last bit, and less than a bound of a test.
    const double noise = jitters && random->Below(2) == 0 ? 1.0 + 3e-7 : 1.0;
    const double kept =
        beta == 0.0f ? 0.0 : static_cast<double>(beta) * result[i];
    result[i] = static_cast<float>(alpha * sums[i] * noise + kept);
  }
}

const CudnnAdvice* Find(int algorithm) {
  for (const CudnnAdvice& advice : Fake().advice) {
    if (advice.algorithm == algorithm && advice.status == kCudnnSuccess) {
      return &advice;
    }
  }
  return nullptr;
}

int Advise(const char* function, const Job& job, int requested, int* returned,
           CudnnAdvice* advice) {
  return Guard(function, [&](Machine&) {
    if (requested < 1 || returned == nullptr || advice == nullptr) {
      return kCudnnBadParam;
    }
    ++Fake().counts.advised;
    *returned = std::min(requested, static_cast<int>(Fake().advice.size()));
    std::copy_n(Fake().advice.begin(), *returned, advice);
    return job.Check();
  });
}

bool Supports(const CudnnWindow& window, const CudnnAdvice& advice) {
  return window.math != weir::cuda::kCudnnFmaMath ||
         advice.math != weir::cuda::kCudnnTensorOpMath;
}

int Workspace(const char* function, const Job& job, int algorithm,
              size_t* bytes) {
  return Guard(function, [&](Machine&) {
    const CudnnAdvice* const advice = Find(algorithm);
    if (job.Check() != kCudnnSuccess || bytes == nullptr) {
      return kCudnnBadParam;
    }
    if (advice == nullptr || !Supports(job.window, *advice)) {
      return kCudnnNotSupported;
    }
    *bytes = advice->workspace_bytes;
    return kCudnnSuccess;
  });
}

int Enqueue(const char* function, CudnnContext* context, const void* alpha,
            const void* beta, int algorithm, Job job) {
  return Guard(function, [&](Machine& machine) {
    const CudnnAdvice* const advice = Find(algorithm);
    if (context == nullptr || alpha == nullptr || beta == nullptr ||
        job.a == nullptr || job.b == nullptr || job.result == nullptr ||
        job.Check() != kCudnnSuccess) {
      return kCudnnBadParam;
    }
    if (advice == nullptr || !Supports(job.window, *advice)) {
      return kCudnnNotSupported;
    }
    // I3
    if (job.workspace_bytes < advice->workspace_bytes ||
        (job.workspace == nullptr && advice->workspace_bytes > 0)) {
      return kCudnnBadParam;
    }
    std::memcpy(&job.alpha, alpha, sizeof(float));
    std::memcpy(&job.beta, beta, sizeof(float));
    job.workspace_bytes = advice->workspace_bytes;
    // I2: default math rounds, but not where the window says FMA.
    job.rounds = job.window.math != weir::cuda::kCudnnFmaMath &&
                 advice->math != weir::cuda::kCudnnFmaMath;
    job.jitters = advice->determinism != weir::cuda::kCudnnDeterministic;
    CUstream_st* const stream = machine.Find(context->stream, context->device);
    if (stream == nullptr || stream->device != context->device) {
      return kCudnnBadParam;
    }
    const auto reach = [&](const char* what, const void* memory,
                           int64_t bytes) {
      if (bytes > 0) {
        machine.CheckReach(what, memory, bytes, context->device);
      }
    };
    reach("cuDNN's first factor", job.a, job.SideA().elements() * kFloatBytes);
    reach("cuDNN's second factor", job.b, job.SideB().elements() * kFloatBytes);
    reach("cuDNN's result", job.result, job.results() * kFloatBytes);
    reach("cuDNN's workspace", job.workspace,
          static_cast<int64_t>(job.workspace_bytes));
    ++Fake().counts.runs;
    Fake().counts.algorithms.push_back(algorithm);
    Random* const random = &machine.random;
    const cudaError_t error =
        machine.Enqueue(stream, [job, random] { job.Run(random); });
    return error == cudaSuccess ? kCudnnSuccess : kCudnnExecutionFailed;
  });
}

// A job of the descriptors; none of them may be null.
Job Describe(Job::Kind kind, const CudnnTensor* x, const CudnnTensor* y,
             const CudnnFilter* kernel, const CudnnWindow* window) {
  Job job;
  job.kind = kind;
  if (x != nullptr && y != nullptr && kernel != nullptr && window != nullptr) {
    job.x = *x;
    job.y = *y;
    job.kernel = *kernel;
    job.window = *window;
  }
  return job;
}

void SetData(Job* job, const void* a, const void* b, void* result,
             void* workspace, size_t workspace_bytes) {
  job->a = static_cast<const float*>(a);
  job->b = static_cast<const float*>(b);
  job->result = static_cast<float*>(result);
  job->workspace = workspace;
  job->workspace_bytes = workspace_bytes;
}

// -------------------------------------------------------------------- tables

using weir::cuda::CudnnApi;

void AddDescriptors(CudnnApi* api) {
  api->create_tensor = [](CudnnTensor** tensor) {
    return Create("cudnnCreateTensorDescriptor", tensor);
  };
  api->destroy_tensor = [](CudnnTensor* tensor) { return Destroy(tensor); };
  api->set_tensor = [](CudnnTensor* tensor, int format, int type, int n, int c,
                       int h, int w) {
    return Guard("cudnnSetTensor4dDescriptor", [&](Machine&) {
      return SetExtents(tensor, format, type, n, c, h, w);
    });
  };
  api->create_filter = [](CudnnFilter** filter) {
    return Create("cudnnCreateFilterDescriptor", filter);
  };
  api->destroy_filter = [](CudnnFilter* filter) { return Destroy(filter); };
  api->set_filter = [](CudnnFilter* filter, int type, int format, int n, int c,
                       int h, int w) {
    return SetExtents(filter, format, type, n, c, h, w);
  };
  api->create_window = [](CudnnWindow** window) {
    return Create("cudnnCreateConvolutionDescriptor", window);
  };
  api->destroy_window = [](CudnnWindow* window) { return Destroy(window); };
  api->set_window = &SetWindow;
  api->set_math = [](CudnnWindow* window, int math) {
    if (window == nullptr) {
      return kCudnnBadParam;
    }
    window->math = math;
    return kCudnnSuccess;
  };
}

void AddAdvice(CudnnApi* api) {
  using Kind = Job::Kind;
  api->advise_forward = [](CudnnContext*, const CudnnTensor* x,
                           const CudnnFilter* kernel, const CudnnWindow* window,
                           const CudnnTensor* y, int requested, int* returned,
                           CudnnAdvice* advice) {
    return Advise("cudnnGetConvolutionForwardAlgorithm_v7",
                  Describe(Kind::kForward, x, y, kernel, window), requested,
                  returned, advice);
  };
  api->advise_backward_data =
      [](CudnnContext*, const CudnnFilter* kernel, const CudnnTensor* dy,
         const CudnnWindow* window, const CudnnTensor* dx, int requested,
         int* returned, CudnnAdvice* advice) {
        return Advise("cudnnGetConvolutionBackwardDataAlgorithm_v7",
                      Describe(Kind::kBackwardData, dx, dy, kernel, window),
                      requested, returned, advice);
      };
  api->advise_backward_filter =
      [](CudnnContext*, const CudnnTensor* x, const CudnnTensor* dy,
         const CudnnWindow* window, const CudnnFilter* dkernel, int requested,
         int* returned, CudnnAdvice* advice) {
        return Advise("cudnnGetConvolutionBackwardFilterAlgorithm_v7",
                      Describe(Kind::kBackwardFilter, x, dy, dkernel, window),
                      requested, returned, advice);
      };
  api->forward_workspace = [](CudnnContext*, const CudnnTensor* x,
                              const CudnnFilter* kernel,
                              const CudnnWindow* window, const CudnnTensor* y,
                              int algorithm, size_t* bytes) {
    return Workspace("cudnnGetConvolutionForwardWorkspaceSize",
                     Describe(Kind::kForward, x, y, kernel, window), algorithm,
                     bytes);
  };
  api->backward_data_workspace =
      [](CudnnContext*, const CudnnFilter* kernel, const CudnnTensor* dy,
         const CudnnWindow* window, const CudnnTensor* dx, int algorithm,
         size_t* bytes) {
        return Workspace("cudnnGetConvolutionBackwardDataWorkspaceSize",
                         Describe(Kind::kBackwardData, dx, dy, kernel, window),
                         algorithm, bytes);
      };
  api->backward_filter_workspace = [](CudnnContext*, const CudnnTensor* x,
                                      const CudnnTensor* dy,
                                      const CudnnWindow* window,
                                      const CudnnFilter* dkernel, int algorithm,
                                      size_t* bytes) {
    return Workspace("cudnnGetConvolutionBackwardFilterWorkspaceSize",
                     Describe(Kind::kBackwardFilter, x, dy, dkernel, window),
                     algorithm, bytes);
  };
}

void AddOperations(CudnnApi* api) {
  using Kind = Job::Kind;
  api->forward = [](CudnnContext* context, const void* alpha,
                    const CudnnTensor* x, const void* x_data,
                    const CudnnFilter* kernel, const void* kernel_data,
                    const CudnnWindow* window, int algorithm, void* workspace,
                    size_t workspace_bytes, const void* beta,
                    const CudnnTensor* y, void* y_data) {
    Job job = Describe(Kind::kForward, x, y, kernel, window);
    SetData(&job, x_data, kernel_data, y_data, workspace, workspace_bytes);
    return Enqueue("cudnnConvolutionForward", context, alpha, beta, algorithm,
                   job);
  };
  api->backward_data = [](CudnnContext* context, const void* alpha,
                          const CudnnFilter* kernel, const void* kernel_data,
                          const CudnnTensor* dy, const void* dy_data,
                          const CudnnWindow* window, int algorithm,
                          void* workspace, size_t workspace_bytes,
                          const void* beta, const CudnnTensor* dx,
                          void* dx_data) {
    Job job = Describe(Kind::kBackwardData, dx, dy, kernel, window);
    SetData(&job, kernel_data, dy_data, dx_data, workspace, workspace_bytes);
    return Enqueue("cudnnConvolutionBackwardData", context, alpha, beta,
                   algorithm, job);
  };
  api->backward_filter = [](CudnnContext* context, const void* alpha,
                            const CudnnTensor* x, const void* x_data,
                            const CudnnTensor* dy, const void* dy_data,
                            const CudnnWindow* window, int algorithm,
                            void* workspace, size_t workspace_bytes,
                            const void* beta, const CudnnFilter* dkernel,
                            void* dkernel_data) {
    Job job = Describe(Kind::kBackwardFilter, x, dy, dkernel, window);
    SetData(&job, x_data, dy_data, dkernel_data, workspace, workspace_bytes);
    return Enqueue("cudnnConvolutionBackwardFilter", context, alpha, beta,
                   algorithm, job);
  };
}

CudnnApi MakeApi() {
  CudnnApi api;
  api.get_version = [] { return size_t{91501}; };
  api.get_error_string = [](int status) {
    switch (status) {
      case kCudnnBadParam:
        return "CUDNN_STATUS_BAD_PARAM";
      case kCudnnNotSupported:
        return "CUDNN_STATUS_NOT_SUPPORTED";
      case weir::cuda::kCudnnSuccess:
        return "CUDNN_STATUS_SUCCESS";
      default:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    }
  };
  api.create = [](CudnnContext** context) {
    const int status = Create("cudnnCreate", context);
    if (status == kCudnnSuccess) {
      (*context)->device = CurrentDevice();
    }
    return status;
  };
  api.destroy = [](CudnnContext* context) { return Destroy(context); };
  api.set_stream = [](CudnnContext* context, cudaStream_t stream) {
    if (context == nullptr) {
      return kCudnnBadParam;
    }
    context->stream = stream;
    return kCudnnSuccess;
  };
  AddDescriptors(&api);
  AddAdvice(&api);
  AddOperations(&api);
  return api;
}

}  // namespace

CudnnAdvice PlainAdvice(int algorithm) {
  return {.algorithm = algorithm,
          .status = kCudnnSuccess,
          .milliseconds = -1.0f,
          .workspace_bytes = 0,
          .determinism = weir::cuda::kCudnnDeterministic,
          .math = weir::cuda::kCudnnFmaMath,
          .reserved = {}};
}

void ConfigureCudnn(std::vector<CudnnAdvice> advice) {
  const int64_t open = Fake().counts.open;
  Fake() = {std::move(advice), {}};
  Fake().counts.open = open;
}

CudnnCounts CountCudnn() { return Fake().counts; }

const CudnnApi& FakeCudnn() {
  static const CudnnApi api = MakeApi();
  return api;
}

}  // namespace weir_emulator
