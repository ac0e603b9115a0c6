#include "worker/compute/cuda/cudnn_graph.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir::cuda {
namespace {

// The identifiers of the tensors. kSums is what a bias is added to; it never
// lies in memory.
enum TensorId : int64_t { kX = 1, kKernel, kY, kBias, kSums };

constexpr int64_t kNotesMax = 16;  // cuDNN 9 has ten

absl::Status ToStatus(const CudnnApi& api, int status, const char* what) {
  if (status == kCudnnSuccess) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat(what, ": ", api.get_error_string(status)));
}

// The attributes of one kind of operation: of its two factors and its result.
struct Attributes {
  CudnnKind kind;
  CudnnAttribute convolution, x, kernel, y, alpha, beta;
};
constexpr Attributes kAttributes[] = {
    {kCudnnForwardOperation, kCudnnForwardConvolution, kCudnnForwardX,
     kCudnnForwardKernel, kCudnnForwardY, kCudnnForwardAlpha,
     kCudnnForwardBeta},
    {kCudnnBackwardDataOperation, kCudnnBackwardDataConvolution,
     kCudnnBackwardDataDx, kCudnnBackwardDataKernel, kCudnnBackwardDataDy,
     kCudnnBackwardDataAlpha, kCudnnBackwardDataBeta},
    {kCudnnBackwardKernelOperation, kCudnnBackwardKernelConvolution,
     kCudnnBackwardKernelX, kCudnnBackwardKernelDkernel, kCudnnBackwardKernelDy,
     kCudnnBackwardKernelAlpha, kCudnnBackwardKernelBeta}};

// cuDNN gives engines notes that say so only in part, and keeps their numbers
// from version to version.
bool Transforms(CudnnProblem::Kind kind, int64_t engine) {
  if (kind == CudnnProblem::Kind::kForward) {
    return engine == 3 || engine == 12;  // 12 adds a bias, too
  }
  return kind == CudnnProblem::Kind::kBackwardKernel &&
         (engine == 17 || engine == 18);
}

}  // namespace

// -------------------------------------------------------------- descriptors

CudnnDescriptor::CudnnDescriptor(const CudnnApi& api, CudnnKind kind)
    : api_(api) {
  status_ = api.create_node(kind, &node_);
}

CudnnDescriptor::~CudnnDescriptor() {
  if (node_ != nullptr) {
    api_.destroy_node(node_);
  }
}

void CudnnDescriptor::Set(CudnnAttribute attribute, CudnnType type,
                          int64_t count, const void* values) {
  if (status_ == kCudnnSuccess) {
    status_ = api_.set_attribute(node_, attribute, type, count, values);
  }
}

void CudnnDescriptor::SetInt(CudnnAttribute attribute, CudnnType type,
                             int value) {
  Set(attribute, type, 1, &value);
}

void CudnnDescriptor::SetInts(CudnnAttribute attribute,
                              const std::vector<int64_t>& values) {
  Set(attribute, kCudnnInt64Value, static_cast<int64_t>(values.size()),
      values.data());
}

void CudnnDescriptor::SetFloat(CudnnAttribute attribute, float value) {
  Set(attribute, kCudnnFloatValue, 1, &value);
}

void CudnnDescriptor::SetNode(CudnnAttribute attribute,
                              const CudnnDescriptor& value) {
  CudnnNode* const node = value.node();
  Set(attribute, kCudnnNodeValue, 1, &node);
}

void CudnnDescriptor::SetContext(CudnnAttribute attribute,
                                 CudnnContext* context) {
  Set(attribute, kCudnnHandleValue, 1, &context);
}

int64_t CudnnDescriptor::Get(CudnnAttribute attribute, CudnnType type,
                             int64_t capacity, void* values) const {
  int64_t count = 0;
  if (node_ == nullptr || api_.get_attribute(node_, attribute, type, capacity,
                                             &count, values) != kCudnnSuccess) {
    return 0;
  }
  return count;
}

absl::Status CudnnDescriptor::Finalize(const char* what) {
  if (status_ == kCudnnSuccess) {
    status_ = api_.finalize(node_);
  }
  return ToStatus(api_, status_, what);
}

// -------------------------------------------------------------------- graph

absl::StatusOr<std::shared_ptr<CudnnGraph>> CudnnGraph::Create(
    const CudnnApi& api, CudnnContext* context, const CudnnProblem& problem) {
  std::shared_ptr<CudnnGraph> graph(new CudnnGraph(api, context, problem.kind));
  WEIR_RETURN_IF_ERROR(graph->Build(problem));
  return graph;
}

CudnnDescriptor* CudnnGraph::Add(CudnnKind kind) {
  return parts_.emplace_back(std::make_unique<CudnnDescriptor>(api_, kind))
      .get();
}

// `extents`: batch, channels, height, width.
absl::StatusOr<CudnnDescriptor*> CudnnGraph::AddTensor(
    int64_t id, bool bf16, const std::vector<int64_t>& extents,
    bool is_virtual) {
  const int64_t channels = extents[1];
  const int64_t row = extents[3] * channels;
  CudnnDescriptor* const tensor = Add(kCudnnTensor);
  tensor->SetInt(kCudnnTensorType, kCudnnDataTypeValue,
                 bf16 ? kCudnnBfloat16 : kCudnnFloat);
  tensor->SetInts(kCudnnTensorDimensions, extents);
  tensor->SetInts(kCudnnTensorStrides, {extents[2] * row, 1, row, channels});
  tensor->SetInts(kCudnnTensorId, {id});
  tensor->SetInts(kCudnnTensorAlignment, {kAlignment});
  if (is_virtual) {
    tensor->Set(kCudnnTensorIsVirtual, kCudnnBooleanValue, 1, &is_virtual);
  }
  WEIR_RETURN_IF_ERROR(tensor->Finalize("tensor"));
  return tensor;
}

absl::StatusOr<CudnnDescriptor*> CudnnGraph::AddWindow(const Conv2dShape& s) {
  CudnnDescriptor* const window = Add(kCudnnConvolution);
  window->SetInt(kCudnnConvolutionType, kCudnnDataTypeValue, kCudnnFloat);
  window->SetInt(kCudnnConvolutionMode, kCudnnConvolutionModeValue,
                 kCudnnCrossCorrelation);
  window->SetInts(kCudnnConvolutionDimensions, {2});
  window->SetInts(kCudnnConvolutionPaddingBefore, {s.padding, s.padding});
  window->SetInts(kCudnnConvolutionPaddingAfter, {s.padding, s.padding});
  window->SetInts(kCudnnConvolutionStrides, {s.stride, s.stride});
  window->SetInts(kCudnnConvolutionDilations, {1, 1});
  WEIR_RETURN_IF_ERROR(window->Finalize("window"));
  return window;
}

absl::StatusOr<CudnnDescriptor*> CudnnGraph::AddBias(
    const Conv2dShape& s, const CudnnDescriptor& sums,
    const CudnnDescriptor& y) {
  WEIR_ASSIGN_OR_RETURN(const CudnnDescriptor* const bias,
                        AddTensor(kBias, /*bf16=*/false, {1, s.filters, 1, 1},
                                  /*is_virtual=*/false));
  CudnnDescriptor* const add = Add(kCudnnPointwise);
  add->SetInt(kCudnnPointwiseMode, kCudnnPointwiseModeValue, kCudnnAdd);
  add->SetInt(kCudnnPointwisePrecision, kCudnnDataTypeValue, kCudnnFloat);
  WEIR_RETURN_IF_ERROR(add->Finalize("addition"));
  CudnnDescriptor* const operation = Add(kCudnnPointwiseOperation);
  operation->SetNode(kCudnnPointwiseDescriptor, *add);
  operation->SetNode(kCudnnPointwiseX, sums);
  operation->SetNode(kCudnnPointwiseB, *bias);
  operation->SetNode(kCudnnPointwiseY, y);
  WEIR_RETURN_IF_ERROR(operation->Finalize("bias"));
  return operation;
}

absl::Status CudnnGraph::Build(const CudnnProblem& problem) {
  using Kind = CudnnProblem::Kind;
  const Conv2dShape& s = problem.shape;
  // Engines count in ints.
  if (std::max({s.batch, s.channels, s.height, s.width, s.filters}) >
      std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError("an extent is over 2^31 - 1");
  }
  const auto bf16 = [&](Kind result) {
    return problem.kind == result ? problem.bf16_result : problem.bf16_factors;
  };
  const std::vector<int64_t> y_extents = {s.batch, s.filters, s.out_height(),
                                          s.out_width()};
  WEIR_ASSIGN_OR_RETURN(
      const CudnnDescriptor* const x,
      AddTensor(kX, bf16(Kind::kBackwardData),
                {s.batch, s.channels, s.height, s.width}, false));
  WEIR_ASSIGN_OR_RETURN(
      const CudnnDescriptor* const kernel,
      AddTensor(kKernel, bf16(Kind::kBackwardKernel),
                {s.filters, s.channels, s.kernel, s.kernel}, false));
  WEIR_ASSIGN_OR_RETURN(const CudnnDescriptor* const y,
                        AddTensor(kY, bf16(Kind::kForward), y_extents, false));
  const CudnnDescriptor* sums = y;
  if (problem.bias) {
    WEIR_ASSIGN_OR_RETURN(sums, AddTensor(kSums, false, y_extents, true));
  }
  WEIR_ASSIGN_OR_RETURN(const CudnnDescriptor* const window, AddWindow(s));

  const Attributes& a = kAttributes[static_cast<int>(problem.kind)];
  CudnnDescriptor* const operation = Add(a.kind);
  operation->SetNode(a.convolution, *window);
  operation->SetNode(a.x, *x);
  operation->SetNode(a.kernel, *kernel);
  operation->SetNode(a.y, *sums);
  operation->SetFloat(a.alpha, 1.0f);
  // cuDNN does not read the result, which may hold NaN.
  operation->SetFloat(a.beta, 0.0f);
  WEIR_RETURN_IF_ERROR(operation->Finalize("operation"));
  std::vector<CudnnNode*> operations = {operation->node()};
  if (problem.bias) {
    WEIR_ASSIGN_OR_RETURN(const CudnnDescriptor* const bias,
                          AddBias(s, *sums, *y));
    operations.push_back(bias->node());
  }
  graph_ = Add(kCudnnGraph);
  graph_->SetContext(kCudnnGraphHandle, context_);
  graph_->Set(kCudnnGraphOperations, kCudnnNodeValue,
              static_cast<int64_t>(operations.size()), operations.data());
  return graph_->Finalize("graph");
}

// ------------------------------------------------------------------ engines

std::vector<CudnnEngine> CudnnGraph::Engines() const {
  std::vector<CudnnEngine> engines;
  for (const int mode : {kCudnnHeuristics, kCudnnFallback}) {
    AddEngines(mode, &engines);
  }
  return engines;
}

// What cuDNN does not answer counts for no engine: the caller has other ways.
void CudnnGraph::AddEngines(int mode, std::vector<CudnnEngine>* engines) const {
  CudnnDescriptor heuristics(api_, kCudnnEngineHeuristics);
  heuristics.SetNode(kCudnnHeuristicsGraph, *graph_);
  heuristics.SetInt(kCudnnHeuristicsMode, kCudnnHeuristicsModeValue, mode);
  if (!heuristics.Finalize("heuristics").ok()) {
    return;
  }
  const int64_t count =
      heuristics.Get(kCudnnHeuristicsResults, kCudnnNodeValue, 0, nullptr);
  std::vector<std::unique_ptr<CudnnDescriptor>> configs;
  std::vector<CudnnNode*> nodes;
  for (int64_t i = 0; i < count; ++i) {
    configs.push_back(
        std::make_unique<CudnnDescriptor>(api_, kCudnnEngineConfig));
    if (configs.back()->node() == nullptr) {
      return;
    }
    nodes.push_back(configs.back()->node());
  }
  const int64_t given = heuristics.Get(kCudnnHeuristicsResults, kCudnnNodeValue,
                                       count, nodes.data());
  for (int64_t i = 0; i < std::min(count, given); ++i) {
    const CudnnDescriptor engine(api_, kCudnnEngine);
    CudnnNode* node = engine.node();
    if (node == nullptr ||
        configs[i]->Get(kCudnnConfigEngine, kCudnnNodeValue, 1, &node) != 1) {
      continue;
    }
    int64_t index = 0;
    engine.Get(kCudnnEngineIndex, kCudnnInt64Value, 1, &index);
    int notes[kNotesMax] = {};
    const int64_t notes_count = std::min(
        engine.Get(kCudnnEngineNotes, kCudnnNoteValue, kNotesMax, notes),
        kNotesMax);
    const auto says = [&](int note) {
      return std::find(notes, notes + notes_count, note) != notes + notes_count;
    };
    // I1: the advice is a function of these three.
    engines->push_back(
        {.name = absl::StrCat("engine ", index, ", advice ", mode, ".", i),
         .tensor_cores = says(kCudnnTensorCore),
         .reduces = says(kCudnnDownConverts) || says(kCudnnReducedSums),
         .deterministic = !says(kCudnnNondeterministic),
         .transforms = Transforms(kind_, index),
         .config = std::move(configs[i])});
  }
}

// -------------------------------------------------------------------- plans

absl::StatusOr<std::unique_ptr<CudnnPlan>> CudnnGraph::MakePlan(
    CudnnEngine engine) const {
  std::unique_ptr<CudnnPlan> plan(
      new CudnnPlan(api_, shared_from_this(), std::move(engine)));
  plan->plan_.SetContext(kCudnnPlanHandle, context_);
  plan->plan_.SetNode(kCudnnPlanConfig, *plan->engine_.config);
  WEIR_RETURN_IF_ERROR(plan->plan_.Finalize("plan"));
  if (plan->plan_.Get(kCudnnPlanWorkspaceSize, kCudnnInt64Value, 1,
                      &plan->workspace_bytes_) != 1) {
    return absl::InternalError("a plan does not say its workspace");
  }
  return plan;
}

CudnnPlan::CudnnPlan(const CudnnApi& api,
                     std::shared_ptr<const CudnnGraph> graph,
                     CudnnEngine engine)
    : api_(api),
      graph_(std::move(graph)),
      engine_(std::move(engine)),
      plan_(api, kCudnnPlan) {}

absl::Status CudnnPlan::MakePack(const CudnnTensors& tensors, void* workspace) {
  const int64_t ids[] = {kX, kKernel, kY, kBias};
  const void* const pointers[] = {tensors.x, tensors.kernel, tensors.y,
                                  tensors.bias};
  const int64_t count = std::ssize(ids) - (tensors.bias == nullptr ? 1 : 0);
  auto pack = std::make_unique<CudnnDescriptor>(api_, kCudnnPack);
  pack->Set(kCudnnPackIds, kCudnnInt64Value, count, ids);
  pack->Set(kCudnnPackPointers, kCudnnPointerValue, count, pointers);
  pack->Set(kCudnnPackWorkspace, kCudnnPointerValue, 1, &workspace);
  WEIR_RETURN_IF_ERROR(pack->Finalize("arguments"));
  pack_ = std::move(pack);
  tensors_ = tensors;
  workspace_ = workspace;
  return absl::OkStatus();
}

// I2: descriptors are memory of the host.
absl::Status CudnnPlan::Run(CudnnContext* context, const CudnnTensors& tensors,
                            void* workspace) {
  if (pack_ == nullptr || !(tensors == tensors_) || workspace != workspace_) {
    WEIR_RETURN_IF_ERROR(MakePack(tensors, workspace));
  }
  return ToStatus(api_, api_.execute(context, plan_.node(), pack_->node()),
                  "run");
}

}  // namespace weir::cuda
