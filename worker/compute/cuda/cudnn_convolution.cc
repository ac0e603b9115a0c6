#include "worker/compute/cuda/cudnn_convolution.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "worker/compute/cuda/kernels.h"

namespace weir::cuda {
namespace {

// More than any operation has algorithms, each in two kinds of arithmetic.
constexpr int kAdviceMax = 32;
constexpr float kOne = 1.0f;
constexpr float kZero = 0.0f;

std::string Describe(const Conv2dShape& s) {
  return absl::StrCat("of [", s.batch, ", ", s.channels, ", ", s.height, ", ",
                      s.width, "] by ", s.filters, " filters of ", s.kernel,
                      "x", s.kernel, ", stride ", s.stride, ", padding ",
                      s.padding);
}

}  // namespace

struct CudnnConvolution::Plan {
  explicit Plan(const CudnnApi& functions) : api(functions) {}
  ~Plan() {
    for (CudnnTensor* tensor : {x, y}) {
      if (tensor != nullptr) {
        api.destroy_tensor(tensor);
      }
    }
    if (kernel != nullptr) {
      api.destroy_filter(kernel);
    }
    if (window != nullptr) {
      api.destroy_window(window);
    }
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const CudnnApi& api;
  CudnnTensor* x = nullptr;  // and dx
  CudnnTensor* y = nullptr;  // and dy
  CudnnFilter* kernel = nullptr;
  CudnnWindow* window = nullptr;
  int algorithm = 0;
  int64_t workspace_bytes = 0;
  std::string name;  // for messages
};

// ------------------------------------------------------------------ set-up

CudnnConvolution::CudnnConvolution(const Options& options)
    : options_(options) {}

absl::StatusOr<std::unique_ptr<CudnnConvolution>> CudnnConvolution::Create(
    const Options& options) {
  std::unique_ptr<CudnnConvolution> result(new CudnnConvolution(options));
  WEIR_RETURN_IF_ERROR(
      result->Check(options.api.create(&result->context_), "cudnnCreate"));
  return result;
}

CudnnConvolution::~CudnnConvolution() {
  plans_.clear();
  if (context_ != nullptr) {
    options_.api.destroy(context_);
  }
}

absl::Status CudnnConvolution::Check(int status, const char* what) const {
  if (status == kCudnnSuccess) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat(what, ": ", options_.api.get_error_string(status)));
}

// ------------------------------------------------------------------- plans

const CudnnConvolution::Plan* CudnnConvolution::FindPlan(Operation operation,
                                                         const Conv2dShape& s) {
  const Key key = {static_cast<int64_t>(operation),
                   s.batch,
                   s.channels,
                   s.height,
                   s.width,
                   s.filters,
                   s.kernel,
                   s.stride,
                   s.padding};
  const auto it = plans_.find(key);
  if (it != plans_.end()) {
    return it->second.get();
  }
  static constexpr const char* kNames[] = {"forward", "backward data",
                                           "backward kernel"};
  const std::string name =
      absl::StrCat("convolution ", kNames[static_cast<int>(operation)], " ",
                   weir::cuda::Describe(s));
  absl::StatusOr<std::unique_ptr<Plan>> plan = MakePlan(operation, s);
  if (!plan.ok()) {
    // Drops an error that cuDNN left, if any; a broken device gives its own
    // again.
    cudaGetLastError();
    // I2: the null that is kept says not to ask, and not to log, again.
    LOG_WARN("cuDNN is not used for {}: {}; Weir's own kernels are", name,
             std::string(plan.status().message()));
    return plans_.emplace(key, nullptr).first->second.get();
  }
  (*plan)->name = absl::StrCat("cuDNN ", name);
  return plans_.emplace(key, *std::move(plan)).first->second.get();
}

absl::StatusOr<std::unique_ptr<CudnnConvolution::Plan>>
CudnnConvolution::MakePlan(Operation operation, const Conv2dShape& shape) {
  auto plan = std::make_unique<Plan>(options_.api);
  WEIR_RETURN_IF_ERROR(Describe(shape, plan.get()));
  WEIR_RETURN_IF_ERROR(Choose(operation, plan.get()));
  // I3: the memory that a run needs is there when its plan is.
  WEIR_RETURN_IF_ERROR(kernel_.ReserveFloats(shape.kernel_elements()).status());
  WEIR_RETURN_IF_ERROR(workspace_.Reserve(plan->workspace_bytes).status());
  return plan;
}

absl::Status CudnnConvolution::Describe(const Conv2dShape& s,
                                        Plan* plan) const {
  const CudnnApi& api = options_.api;
  // cuDNN's extents are ints; the contract's are not.
  if (std::max({s.batch, s.channels, s.height, s.width, s.filters}) >
      std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError("an extent is over 2^31 - 1");
  }
  const auto batch = static_cast<int>(s.batch);
  const auto channels = static_cast<int>(s.channels);
  const auto filters = static_cast<int>(s.filters);
  const auto kernel = static_cast<int>(s.kernel);
  const auto stride = static_cast<int>(s.stride);
  const auto padding = static_cast<int>(s.padding);
  WEIR_RETURN_IF_ERROR(
      Check(api.create_tensor(&plan->x), "cudnnCreateTensorDescriptor"));
  WEIR_RETURN_IF_ERROR(
      Check(api.create_tensor(&plan->y), "cudnnCreateTensorDescriptor"));
  WEIR_RETURN_IF_ERROR(
      Check(api.create_filter(&plan->kernel), "cudnnCreateFilterDescriptor"));
  WEIR_RETURN_IF_ERROR(Check(api.create_window(&plan->window),
                             "cudnnCreateConvolutionDescriptor"));
  WEIR_RETURN_IF_ERROR(Check(
      api.set_tensor(plan->x, kCudnnNhwc, kCudnnFloat, batch, channels,
                     static_cast<int>(s.height), static_cast<int>(s.width)),
      "cudnnSetTensor4dDescriptor"));
  WEIR_RETURN_IF_ERROR(
      Check(api.set_tensor(plan->y, kCudnnNhwc, kCudnnFloat, batch, filters,
                           static_cast<int>(s.out_height()),
                           static_cast<int>(s.out_width())),
            "cudnnSetTensor4dDescriptor"));
  WEIR_RETURN_IF_ERROR(
      Check(api.set_filter(plan->kernel, kCudnnFloat, kCudnnNhwc, filters,
                           channels, kernel, kernel),
            "cudnnSetFilter4dDescriptor"));
  return Check(api.set_window(plan->window, padding, padding, stride, stride, 1,
                              1, kCudnnCrossCorrelation, kCudnnFloat),
               "cudnnSetConvolution2dDescriptor");
}

// I1: the math of the descriptor is what holds an algorithm to float32. So in
// fp32 it stays FMA, whatever the advice says; the advice may say "default" for
// an algorithm that has no other arithmetic. Asking for the workspace again
// under that math refuses an algorithm that cannot compute so.
absl::Status CudnnConvolution::Choose(Operation operation, Plan* plan) {
  const CudnnApi& api = options_.api;
  const auto set_math = [&](int math) {
    return Check(api.set_math(plan->window, math),
                 "cudnnSetConvolutionMathType");
  };
  WEIR_RETURN_IF_ERROR(
      set_math(options_.tf32 ? kCudnnTensorOpMath : kCudnnFmaMath));
  CudnnAdvice advice[kAdviceMax] = {};
  int count = 0;
  switch (operation) {
    case Operation::kForward:
      WEIR_RETURN_IF_ERROR(Check(
          api.advise_forward(context_, plan->x, plan->kernel, plan->window,
                             plan->y, kAdviceMax, &count, advice),
          "cudnnGetConvolutionForwardAlgorithm_v7"));
      break;
    case Operation::kBackwardData:
      WEIR_RETURN_IF_ERROR(
          Check(api.advise_backward_data(context_, plan->kernel, plan->y,
                                         plan->window, plan->x, kAdviceMax,
                                         &count, advice),
                "cudnnGetConvolutionBackwardDataAlgorithm_v7"));
      break;
    case Operation::kBackwardKernel:
      WEIR_RETURN_IF_ERROR(Check(
          api.advise_backward_filter(context_, plan->x, plan->y, plan->window,
                                     plan->kernel, kAdviceMax, &count, advice),
          "cudnnGetConvolutionBackwardFilterAlgorithm_v7"));
      break;
  }
  // The advice is sorted, so the first that is allowed is the fastest.
  for (int i = 0; i < count; ++i) {
    if (!Allows(operation, advice[i])) {
      continue;
    }
    if (options_.tf32) {
      WEIR_RETURN_IF_ERROR(set_math(advice[i].math));
    }
    // The advice has a workspace, too, but for the math that it names.
    const absl::StatusOr<int64_t> bytes =
        WorkspaceBytes(operation, *plan, advice[i].algorithm);
    if (bytes.ok() && *bytes <= options_.workspace_bytes_max) {
      plan->algorithm = advice[i].algorithm;
      plan->workspace_bytes = *bytes;
      return absl::OkStatus();
    }
  }
  return absl::NotFoundError(absl::StrCat(
      "none of the ", count, " algorithms that it advises ",
      options_.deterministic ? "is deterministic, " : "", "adds plain ",
      options_.tf32 ? "TF32" : "float32", " products and takes at most ",
      options_.workspace_bytes_max, " bytes of workspace"));
}

bool CudnnConvolution::Allows(Operation operation,
                              const CudnnAdvice& advice) const {
  // I1, one condition after the other. A transform (FFT, Winograd) loses digits
  // and spreads a NaN over pixels that it has nothing to do with.
  static constexpr std::span<const int> kDirect[] = {
      kCudnnForwardDirect, kCudnnBackwardDataDirect,
      kCudnnBackwardFilterDirect};
  const std::span<const int> direct = kDirect[static_cast<int>(operation)];
  // "Default" may round to TF32 on its own, but not under the FMA math that
  // Choose() sets in fp32.
  const bool exact =
      advice.math == kCudnnFmaMath || advice.math == kCudnnDefaultMath;
  return std::count(direct.begin(), direct.end(), advice.algorithm) > 0 &&
         advice.status == kCudnnSuccess &&
         (exact || (options_.tf32 && advice.math == kCudnnTensorOpMath)) &&
         (!options_.deterministic || advice.determinism == kCudnnDeterministic);
}

absl::StatusOr<int64_t> CudnnConvolution::WorkspaceBytes(Operation operation,
                                                         const Plan& plan,
                                                         int algorithm) const {
  const CudnnApi& api = options_.api;
  size_t bytes = 0;
  int status = kCudnnSuccess;
  switch (operation) {
    case Operation::kForward:
      status = api.forward_workspace(context_, plan.x, plan.kernel, plan.window,
                                     plan.y, algorithm, &bytes);
      break;
    case Operation::kBackwardData:
      status =
          api.backward_data_workspace(context_, plan.kernel, plan.y,
                                      plan.window, plan.x, algorithm, &bytes);
      break;
    case Operation::kBackwardKernel:
      status =
          api.backward_filter_workspace(context_, plan.x, plan.y, plan.window,
                                        plan.kernel, algorithm, &bytes);
      break;
  }
  WEIR_RETURN_IF_ERROR(Check(status, "workspace of an algorithm"));
  return static_cast<int64_t>(bytes);
}

// --------------------------------------------------------------- operations

absl::Status CudnnConvolution::UseStream(cudaStream_t stream) {
  // A call of cuDNN costs time, and the stream is nearly always the same.
  if (stream != stream_) {
    WEIR_RETURN_IF_ERROR(
        Check(options_.api.set_stream(context_, stream), "cudnnSetStream"));
    stream_ = stream;
  }
  return absl::OkStatus();
}

template <class Op, class Compute>
absl::Status CudnnConvolution::Run(cudaStream_t stream, Operation operation,
                                   const Op& o, Compute compute) {
  const Plan* const plan = FindPlan(operation, o.shape);
  if (plan == nullptr) {
    return options_.own->Run(stream, o);  // I2
  }
  WEIR_RETURN_IF_ERROR(UseStream(stream));
  // I3: both scratches have had their size since the plan was made.
  WEIR_ASSIGN_OR_RETURN(float* const kernel,
                        kernel_.ReserveFloats(o.shape.kernel_elements()));
  WEIR_ASSIGN_OR_RETURN(void* const workspace,
                        workspace_.Reserve(plan->workspace_bytes));
  return Check(compute(*plan, kernel, workspace,
                       static_cast<size_t>(plan->workspace_bytes)),
               plan->name.c_str());
}

// At beta = 0 cuDNN does not read the result, which may hold NaN. Its kernels
// have their channels last.
absl::Status CudnnConvolution::Run(cudaStream_t stream,
                                   const op::Conv2dForward& o) {
  const Conv2dShape& s = o.shape;
  return Run(
      stream, Operation::kForward, o,
      [&](const Plan& plan, float* kernel, void* workspace, size_t bytes) {
        Enqueue(stream, op::Transpose{s.filters, s.channels,
                                      s.kernel * s.kernel, o.kernel, kernel});
        const int status = options_.api.forward(
            context_, &kOne, plan.x, o.x, plan.kernel, kernel, plan.window,
            plan.algorithm, workspace, bytes, &kZero, plan.y, o.y);
        if (status == kCudnnSuccess && o.bias != nullptr) {
          AddBias(stream, s.batch * s.out_height() * s.out_width(), s.filters,
                  o.bias, o.y);
        }
        return status;
      });
}

absl::Status CudnnConvolution::Run(cudaStream_t stream,
                                   const op::Conv2dBackwardData& o) {
  const Conv2dShape& s = o.shape;
  return Run(
      stream, Operation::kBackwardData, o,
      [&](const Plan& plan, float* kernel, void* workspace, size_t bytes) {
        Enqueue(stream, op::Transpose{s.filters, s.channels,
                                      s.kernel * s.kernel, o.kernel, kernel});
        return options_.api.backward_data(
            context_, &kOne, plan.kernel, kernel, plan.y, o.dy, plan.window,
            plan.algorithm, workspace, bytes, &kZero, plan.x, o.dx);
      });
}

absl::Status CudnnConvolution::Run(cudaStream_t stream,
                                   const op::Conv2dBackwardKernel& o) {
  const Conv2dShape& s = o.shape;
  return Run(
      stream, Operation::kBackwardKernel, o,
      [&](const Plan& plan, float* kernel, void* workspace, size_t bytes) {
        const int status = options_.api.backward_filter(
            context_, &kOne, plan.x, o.x, plan.y, o.dy, plan.window,
            plan.algorithm, workspace, bytes, &kZero, plan.kernel, kernel);
        if (status == kCudnnSuccess) {
          Enqueue(stream, op::Transpose{s.filters, s.kernel * s.kernel,
                                        s.channels, kernel, o.dkernel});
        }
        return status;
      });
}

}  // namespace weir::cuda
