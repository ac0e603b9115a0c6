#include "worker/compute/cuda/cudnn_convolution.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "worker/compute/cuda/kernels.h"

namespace weir::cuda {
namespace {

using Kind = CudnnProblem::Kind;

// Runs of a candidate that are timed, after one that is not. One that is so
// many times slower than the best gets no further run.
constexpr int kTimedRuns = 4;
constexpr float kHopeless = 1.5f;

// With fewer channels a transform serves too few products.
constexpr int64_t kTransformChannels = 16;

std::string Describe(const Conv2dShape& s) {
  return absl::StrCat("[", s.batch, ", ", s.channels, ", ", s.height, ", ",
                      s.width, "] by ", s.filters, " filters of ", s.kernel,
                      "x", s.kernel, ", stride ", s.stride, ", padding ",
                      s.padding);
}

const char* NameOf(Kind kind) {
  static constexpr const char* kNames[] = {"forward", "backward data",
                                           "backward kernel"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace

int64_t CudnnConvolution::Job::result_elements() const {
  switch (kind) {
    case Kind::kForward:
      return shape.y_elements();
    case Kind::kBackwardData:
      return shape.x_elements();
    case Kind::kBackwardKernel:
      return shape.kernel_elements();
  }
  return 0;
}

absl::Status CudnnConvolution::Scratch::Reserve(const Job& job, const Way& way,
                                                int64_t workspace_bytes) {
  WEIR_RETURN_IF_ERROR(
      kernel.ReserveFloats(job.shape.kernel_elements()).status());
  if (way.bf16_result) {
    WEIR_RETURN_IF_ERROR(
        result
            .Reserve(job.result_elements() * static_cast<int64_t>(sizeof(Bf16)))
            .status());
  }
  return workspace.Reserve(workspace_bytes).status();
}

// ------------------------------------------------------------------ set-up

absl::StatusOr<std::unique_ptr<CudnnConvolution>> CudnnConvolution::Create(
    const Options& options) {
  std::unique_ptr<CudnnConvolution> result(new CudnnConvolution(options));
  WEIR_RETURN_IF_ERROR(
      result->Check(options.api.create(&result->context_), "cudnnCreate"));
  int device = 0;
  WEIR_RETURN_IF_ERROR(ToStatus(cudaGetDevice(&device), "cudaGetDevice"));
  cudaDeviceProp properties = {};
  WEIR_RETURN_IF_ERROR(ToStatus(cudaGetDeviceProperties(&properties, device),
                                "cudaGetDeviceProperties"));
  result->device_ =
      absl::StrCat(properties.name, ", cuDNN ", options.api.get_version());
  for (cudaEvent_t* const event : {&result->begin_, &result->end_}) {
    WEIR_RETURN_IF_ERROR(ToStatus(cudaEventCreate(event), "cudaEventCreate"));
  }
  return result;
}

CudnnConvolution::~CudnnConvolution() {
  plans_.clear();
  for (const cudaEvent_t event : {begin_, end_}) {
    if (event != nullptr) {
      cudaEventDestroy(event);
    }
  }
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

const char* CudnnConvolution::precision() const {
  if (bf16()) {
    return "bf16";
  }
  return options_.tf32 ? "tf32" : "fp32";
}

// ------------------------------------------------------------------- plans

CudnnConvolution::Plan* CudnnConvolution::FindPlan(cudaStream_t stream,
                                                   const Job& job) {
  const Conv2dShape& s = job.shape;
  const Key key = {static_cast<int64_t>(job.kind),
                   job.bias != nullptr ? 1 : 0,
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
    return &it->second;
  }
  absl::StatusOr<Plan> plan = MakePlan(stream, job);
  if (!plan.ok()) {
    // Drops an error that cuDNN left, if any; a broken device gives its own
    // again.
    cudaGetLastError();
    // I2: the plan that is kept says not to ask, and not to log, again.
    LOG_WARN(
        "cuDNN is not used for convolution {} of {}: {}; Weir's own "
        "kernels are",
        NameOf(job.kind), Describe(s), std::string(plan.status().message()));
    return &plans_.emplace(key, Plan{}).first->second;
  }
  plan->name =
      absl::StrCat("cuDNN convolution ", NameOf(job.kind), " of ", Describe(s));
  return &plans_.emplace(key, *std::move(plan)).first->second;
}

absl::StatusOr<CudnnConvolution::Plan> CudnnConvolution::MakePlan(
    cudaStream_t stream, const Job& job) {
  std::vector<Candidate> candidates = Candidates(job);
  if (candidates.empty()) {
    return absl::NotFoundError(
        absl::StrCat("it advises no engine that ",
                     options_.deterministic ? "is deterministic and " : "",
                     "computes in ", precision()));
  }
  Plan plan;
  if (options_.deterministic) {
    WEIR_ASSIGN_OR_RETURN(plan, TakeKnown(job, std::move(candidates)));
  } else {
    const std::string key =
        absl::StrCat(device_, ", ", precision(), ", ", NameOf(job.kind), " of ",
                     Describe(job.shape), job.bias != nullptr ? ", bias" : "");
    const std::string known = choices_.Find(key);
    std::string name;
    const auto it =
        std::find_if(candidates.begin(), candidates.end(),
                     [&](const Candidate& c) { return c.name == known; });
    if (it != candidates.end()) {
      std::vector<Candidate> chosen;
      chosen.push_back(std::move(*it));
      candidates.erase(it);
      absl::StatusOr<Plan> again =
          TakeFirst(std::move(chosen), kLargeWorkspaceBytes);
      // There may be less memory than when it was timed.
      if (again.ok() &&
          scratch_.Reserve(job, again->way, again->plan->workspace_bytes())
              .ok()) {
        return again;
      }
    }
    WEIR_ASSIGN_OR_RETURN(
        plan, TakeFastest(stream, job, std::move(candidates), &name));
    choices_.Add(key, name);
  }
  // I3: the memory that a run needs is there when its plan is.
  WEIR_RETURN_IF_ERROR(
      scratch_.Reserve(job, plan.way, plan.plan->workspace_bytes()));
  return plan;
}

std::vector<CudnnConvolution::Way> CudnnConvolution::Ways(
    const Job& job) const {
  std::vector<Way> ways;
  if (bf16()) {
    ways.push_back({.bf16_factors = true, .bf16_result = true});
    ways.push_back({.bf16_factors = true});
  }
  if (job.bias != nullptr) {
    ways.push_back({.fused_bias = true});
  }
  ways.push_back({});
  return ways;
}

std::vector<CudnnConvolution::Candidate> CudnnConvolution::Candidates(
    const Job& job) {
  std::vector<Candidate> candidates;
  for (const Way& way : Ways(job)) {
    const auto graph = CudnnGraph::Create(options_.api, context_,
                                          {.kind = job.kind,
                                           .shape = job.shape,
                                           .bf16_factors = way.bf16_factors,
                                           .bf16_result = way.bf16_result,
                                           .bias = way.fused_bias});
    if (!graph.ok()) {
      continue;
    }
    for (CudnnEngine& engine : (*graph)->Engines()) {
      // I1
      const bool rounds = engine.tensor_cores && !bf16() && !options_.tf32;
      if (rounds || engine.reduces ||
          (options_.deterministic && !engine.deterministic)) {
        continue;
      }
      std::string name =
          absl::StrCat(way.bf16_factors ? "bf16" : "float32", " to ",
                       way.bf16_result ? "bf16" : "float32",
                       way.fused_bias ? " with bias" : "", ", ", engine.name);
      candidates.push_back({way, std::move(name), *graph, std::move(engine)});
    }
  }
  return candidates;
}

absl::StatusOr<CudnnConvolution::Plan> CudnnConvolution::TakeKnown(
    const Job& job, std::vector<Candidate> candidates) {
  // cuDNN advises them last, and without tensor cores they are the fastest.
  if (!bf16() && !options_.tf32 &&
      std::min(job.shape.channels, job.shape.filters) >= kTransformChannels) {
    const auto others = std::stable_partition(
        candidates.begin(), candidates.end(),
        [](const Candidate& c) { return c.engine.transforms; });
    std::vector<Candidate> transforms(
        std::make_move_iterator(candidates.begin()),
        std::make_move_iterator(others));
    candidates.erase(candidates.begin(), others);
    absl::StatusOr<Plan> plan =
        TakeFirst(std::move(transforms), kLargeWorkspaceBytes);
    if (plan.ok()) {
      const absl::Status memory =
          scratch_.Reserve(job, plan->way, plan->plan->workspace_bytes());
      if (memory.ok()) {
        return plan;
      }
      LOG_WARN("convolution of {}: bits may differ from other devices': {}",
               Describe(job.shape), std::string(memory.message()));
      cudaGetLastError();
    }
  }
  return TakeFirst(std::move(candidates), kWorkspaceBytes);
}

absl::StatusOr<CudnnConvolution::Plan> CudnnConvolution::TakeFirst(
    std::vector<Candidate> candidates, int64_t workspace_bytes_max) {
  absl::Status status = absl::NotFoundError(absl::StrCat(
      "no engine takes at most ", workspace_bytes_max, " bytes of workspace"));
  for (Candidate& candidate : candidates) {
    absl::StatusOr<std::unique_ptr<CudnnPlan>> plan =
        candidate.graph->MakePlan(std::move(candidate.engine));
    if (!plan.ok()) {
      status = plan.status();
    } else if ((*plan)->workspace_bytes() <= workspace_bytes_max) {
      return Plan{.way = candidate.way, .name = {}, .plan = *std::move(plan)};
    }
  }
  return status;
}

absl::StatusOr<CudnnConvolution::Plan> CudnnConvolution::TakeFastest(
    cudaStream_t stream, const Job& job, std::vector<Candidate> candidates,
    std::string* name) {
  size_t free = 0;
  size_t total = 0;
  WEIR_RETURN_IF_ERROR(
      ToStatus(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  const int64_t workspace_bytes_max =
      std::min(kLargeWorkspaceBytes, static_cast<int64_t>(free / 4));
  Plan fastest;
  Scratch scratch;  // given back once the choice is made
  float best = std::numeric_limits<float>::infinity();
  absl::Status status;
  for (Candidate& candidate : candidates) {
    std::vector<Candidate> one;
    one.push_back(std::move(candidate));
    const std::string candidate_name = one.front().name;
    absl::StatusOr<Plan> plan = TakeFirst(std::move(one), workspace_bytes_max);
    if (!plan.ok()) {
      status = plan.status();
      continue;
    }
    const absl::StatusOr<float> milliseconds =
        Milliseconds(stream, job, *plan, &scratch, best);
    if (!milliseconds.ok()) {
      // The next one may do; an error of CUDA itself comes again.
      cudaGetLastError();
      status = milliseconds.status();
    } else if (*milliseconds < best) {
      best = *milliseconds;
      fastest = *std::move(plan);
      *name = candidate_name;
    }
  }
  if (fastest.plan == nullptr) {
    return status;
  }
  LOG_INFO("convolution {} of {}: {:.3f} ms by {}", NameOf(job.kind),
           Describe(job.shape), best, *name);
  return fastest;
}

absl::StatusOr<float> CudnnConvolution::Milliseconds(cudaStream_t stream,
                                                     const Job& job,
                                                     const Plan& plan,
                                                     Scratch* scratch,
                                                     float best) {
  WEIR_RETURN_IF_ERROR(
      scratch->Reserve(job, plan.way, plan.plan->workspace_bytes()));
  // The first run loads the kernel and rounds the factors.
  WEIR_RETURN_IF_ERROR(Enqueue(stream, job, plan, scratch));
  float least = std::numeric_limits<float>::infinity();
  for (int i = 0; i < kTimedRuns; ++i) {
    WEIR_ASSIGN_OR_RETURN(const float milliseconds,
                          MillisecondsOnce(stream, job, plan, scratch));
    least = std::min(least, milliseconds);
    if (least > kHopeless * best) {
      break;
    }
  }
  return least;
}

absl::StatusOr<float> CudnnConvolution::MillisecondsOnce(cudaStream_t stream,
                                                         const Job& job,
                                                         const Plan& plan,
                                                         Scratch* scratch) {
  WEIR_RETURN_IF_ERROR(
      ToStatus(cudaEventRecord(begin_, stream), "cudaEventRecord"));
  WEIR_RETURN_IF_ERROR(Enqueue(stream, job, plan, scratch));
  WEIR_RETURN_IF_ERROR(
      ToStatus(cudaEventRecord(end_, stream), "cudaEventRecord"));
  WEIR_RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(end_), "convolution"));
  float milliseconds = 0.0f;
  WEIR_RETURN_IF_ERROR(
      ToStatus(cudaEventElapsedTime(&milliseconds, begin_, end_),
               "cudaEventElapsedTime"));
  return milliseconds;
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

absl::StatusOr<const void*> CudnnConvolution::Factor(cudaStream_t stream,
                                                     const Way& way,
                                                     const float* x,
                                                     int64_t count) {
  if (!way.bf16_factors) {
    return x;
  }
  WEIR_ASSIGN_OR_RETURN(const Bf16* const copy,
                        options_.copies->Of(stream, x, count));
  return copy;
}

absl::Status CudnnConvolution::Enqueue(cudaStream_t stream, const Job& job,
                                       const Plan& plan, Scratch* scratch) {
  const Conv2dShape& s = job.shape;
  const Way& way = plan.way;
  const int64_t area = s.kernel * s.kernel;
  // These have had their size since the plan was made (I3).
  WEIR_ASSIGN_OR_RETURN(float* const kernel,
                        scratch->kernel.ReserveFloats(s.kernel_elements()));
  WEIR_ASSIGN_OR_RETURN(
      void* const workspace,
      scratch->workspace.Reserve(plan.plan->workspace_bytes()));
  WEIR_ASSIGN_OR_RETURN(void* const rounded, scratch->result.Reserve(0));
  CudnnTensors tensors;
  if (job.kernel != nullptr && way.bf16_factors) {
    TransposeToBf16(stream, s.filters, s.channels, area, job.kernel,
                    reinterpret_cast<Bf16*>(kernel));
  } else if (job.kernel != nullptr) {
    cuda::Enqueue(
        stream, op::Transpose{s.filters, s.channels, area, job.kernel, kernel});
  }
  tensors.kernel = kernel;
  if (job.x != nullptr) {
    WEIR_ASSIGN_OR_RETURN(tensors.x,
                          Factor(stream, way, job.x, s.x_elements()));
  }
  if (job.y != nullptr) {
    WEIR_ASSIGN_OR_RETURN(tensors.y,
                          Factor(stream, way, job.y, s.y_elements()));
  }
  if (way.fused_bias) {
    tensors.bias = job.bias;
  }
  // What the result is in float32: the kernel's gradient is transposed below.
  float* const sums = job.kind == Kind::kBackwardKernel ? kernel : job.result;
  const void* const written = way.bf16_result ? rounded : sums;
  switch (job.kind) {
    case Kind::kForward:
      tensors.y = written;
      break;
    case Kind::kBackwardData:
      tensors.x = written;
      break;
    case Kind::kBackwardKernel:
      tensors.kernel = written;
      break;
  }
  WEIR_RETURN_IF_ERROR(plan.plan->Run(context_, tensors, workspace));
  if (way.bf16_result) {
    const bool forward = job.kind == Kind::kForward;
    FromBf16(stream, job.result_elements() / (forward ? s.filters : 1),
             forward ? s.filters : 1, static_cast<const Bf16*>(rounded),
             job.bias, sums);
  } else if (job.bias != nullptr && !way.fused_bias) {
    AddBias(stream, s.batch * s.out_height() * s.out_width(), s.filters,
            job.bias, job.result);
  }
  if (job.kind == Kind::kBackwardKernel) {
    cuda::Enqueue(
        stream, op::Transpose{s.filters, area, s.channels, kernel, job.result});
  }
  return absl::OkStatus();
}

template <class Op>
absl::Status CudnnConvolution::RunJob(cudaStream_t stream, const Op& o,
                                      const Job& job) {
  for (const float* const p : {job.x, job.kernel, job.y, job.bias,
                               static_cast<const float*>(job.result)}) {
    if (reinterpret_cast<uintptr_t>(p) % CudnnGraph::kAlignment != 0) {
      return options_.own->Run(stream, o);  // a part of a tensor
    }
  }
  WEIR_RETURN_IF_ERROR(UseStream(stream));
  const Plan* const plan = FindPlan(stream, job);
  if (plan->plan == nullptr) {
    return options_.own->Run(stream, o);  // I2
  }
  const absl::Status status = Enqueue(stream, job, *plan, &scratch_);
  return status.ok()
             ? status
             : absl::Status(status.code(),
                            absl::StrCat(plan->name, ": ", status.message()));
}

absl::Status CudnnConvolution::Run(cudaStream_t stream,
                                   const op::Conv2dForward& o) {
  return RunJob(stream, o,
                {.kind = Kind::kForward,
                 .shape = o.shape,
                 .x = o.x,
                 .kernel = o.kernel,
                 .bias = o.bias,
                 .result = o.y});
}

absl::Status CudnnConvolution::Run(cudaStream_t stream,
                                   const op::Conv2dBackwardData& o) {
  return RunJob(stream, o,
                {.kind = Kind::kBackwardData,
                 .shape = o.shape,
                 .kernel = o.kernel,
                 .y = o.dy,
                 .result = o.dx});
}

absl::Status CudnnConvolution::Run(cudaStream_t stream,
                                   const op::Conv2dBackwardKernel& o) {
  return RunJob(stream, o,
                {.kind = Kind::kBackwardKernel,
                 .shape = o.shape,
                 .x = o.x,
                 .y = o.dy,
                 .result = o.dkernel});
}

}  // namespace weir::cuda
