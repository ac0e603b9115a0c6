#include "tests/worker/compute/cuda/emulator/fake_cudnn.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "tests/worker/compute/cuda/emulator/scheduler.h"

namespace weir::cuda {

struct CudnnContext {
  int device = 0;
  cudaStream_t stream = nullptr;
};

struct CudnnNode {
  struct Value {
    int type = -1;
    int64_t count = 0;
    std::vector<char> bytes;
  };
  int kind = -1;
  bool final = false;
  std::map<int, Value> attributes;
  weir_emulator::FakeEngine engine;  // of configurations and engines
};

}  // namespace weir::cuda

namespace weir_emulator {
namespace {

using weir::cuda::CudnnContext;
using weir::cuda::CudnnNode;
using weir::cuda::kCudnnSuccess;

struct State {
  std::vector<FakeEngine> advised;
  std::vector<FakeEngine> fallback;
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

size_t SizeOf(int type) {
  switch (type) {
    case weir::cuda::kCudnnHandleValue:
    case weir::cuda::kCudnnPointerValue:
    case weir::cuda::kCudnnNodeValue:
    case weir::cuda::kCudnnInt64Value:
      return 8;
    case weir::cuda::kCudnnBooleanValue:
      return 1;
    default:
      return 4;
  }
}

template <class T>
std::vector<T> Values(const CudnnNode* node, int attribute) {
  const auto it = node->attributes.find(attribute);
  if (it == node->attributes.end()) {
    return {};
  }
  std::vector<T> values(static_cast<size_t>(it->second.count));
  std::memcpy(values.data(), it->second.bytes.data(), it->second.bytes.size());
  return values;
}

template <class T>
T ValueOf(const CudnnNode* node, int attribute, T otherwise) {
  const std::vector<T> values = Values<T>(node, attribute);
  return values.size() == 1 ? values.front() : otherwise;
}

CudnnNode* NodeOf(const CudnnNode* node, int attribute) {
  return ValueOf<CudnnNode*>(node, attribute, nullptr);
}

int SetAttribute(CudnnNode* node, int attribute, int type, int64_t count,
                 const void* values) {
  if (node == nullptr || node->final || count < 1 || values == nullptr) {
    return kCudnnBadParam;
  }
  CudnnNode::Value& value = node->attributes[attribute];
  value = {type, count, {}};
  value.bytes.resize(static_cast<size_t>(count) * SizeOf(type));
  std::memcpy(value.bytes.data(), values, value.bytes.size());
  if (type == weir::cuda::kCudnnNodeValue) {
    for (const CudnnNode* other : Values<CudnnNode*>(node, attribute)) {
      if (other == nullptr || !other->final) {
        return kCudnnBadParam;
      }
    }
  }
  return kCudnnSuccess;
}

// -------------------------------------------------------------- convolution

struct Tensor {
  int type = -1;
  std::vector<int64_t> extents;  // batch, channels, height, width
  bool is_virtual = false;
  const void* memory = nullptr;

  bool IsBf16() const { return type == weir::cuda::kCudnnBfloat16; }
  int64_t elements() const {
    return extents[0] * extents[1] * extents[2] * extents[3];
  }
  int64_t bytes() const { return elements() * (IsBf16() ? 2 : 4); }
  int64_t At(int64_t image, int64_t row, int64_t column,
             int64_t channel) const {
    return ((image * extents[2] + row) * extents[3] + column) * extents[1] +
           channel;
  }
  float Read(int64_t i) const {
    if (!IsBf16()) {
      return static_cast<const float*>(memory)[i];
    }
    const uint32_t bits = static_cast<const uint16_t*>(memory)[i];
    return std::bit_cast<float>(bits << 16);
  }
  void Write(int64_t i, float value) const {
    void* const to = const_cast<void*>(memory);
    if (!IsBf16()) {
      static_cast<float*>(to)[i] = value;
      return;
    }
    const auto bits = std::bit_cast<uint32_t>(value);
    static_cast<uint16_t*>(to)[i] =
        static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
};

// A graph, as a plan runs it.
struct Job {
  int kind = -1;
  Tensor x, kernel, y, bias;
  bool has_bias = false;
  int64_t padding = 0;
  int64_t stride = 1;
  FakeEngine engine;
  void* workspace = nullptr;

  const Tensor& result() const {
    switch (kind) {
      case weir::cuda::kCudnnForwardOperation:
        return y;
      case weir::cuda::kCudnnBackwardDataOperation:
        return x;
      default:
        return kernel;
    }
  }
  bool ReadsBf16() const {
    return kind == weir::cuda::kCudnnForwardOperation ? x.IsBf16() : y.IsBf16();
  }
  bool Rounds() const {  // I2
    return !ReadsBf16() && std::count(engine.notes.begin(), engine.notes.end(),
                                      weir::cuda::kCudnnTensorCore) > 0;
  }
  bool Jitters() const {
    return std::count(engine.notes.begin(), engine.notes.end(),
                      weir::cuda::kCudnnNondeterministic) > 0;
  }
  int Check() const;
  void Run(Random* random) const;

 private:
  template <class F>
  void ForEachRow(F f) const;
};

int Job::Check() const {
  const auto out = [this](int64_t in, int64_t size) {
    return (in + 2 * padding - size) / stride + 1;
  };
  const auto& [xs, ks, ys] = std::tie(x.extents, kernel.extents, y.extents);
  if (xs.size() != 4 || ks.size() != 4 || ys.size() != 4 || xs[0] != ys[0] ||
      xs[1] != ks[1] || ys[1] != ks[0] || ys[2] != out(xs[2], ks[2]) ||
      ys[3] != out(xs[3], ks[3])) {
    return kCudnnBadParam;
  }
  return kCudnnSuccess;
}

// f(index into x, into y, into the kernel) for each first channel; the other
// channels follow in x and in the kernel.
template <class F>
void Job::ForEachRow(F f) const {
  const int64_t width = y.extents[3];
  const int64_t size = kernel.extents[2];
  for (int64_t image = 0; image < y.extents[0]; ++image) {
    for (int64_t out = 0; out < y.extents[2] * width; ++out) {
      for (int64_t tap = 0; tap < size * size; ++tap) {
        const int64_t row = out / width * stride - padding + tap / size;
        const int64_t column = out % width * stride - padding + tap % size;
        if (row < 0 || row >= x.extents[2] || column < 0 ||
            column >= x.extents[3]) {
          continue;
        }
        for (int64_t filter = 0; filter < y.extents[1]; ++filter) {
          f(x.At(image, row, column, 0),
            y.At(image, out / width, out % width, filter),
            kernel.At(filter, tap / size, tap % size, 0));
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
  if (engine.workspace_bytes > 0) {
    std::memset(workspace, 0xff, static_cast<size_t>(engine.workspace_bytes));
  }
  std::vector<double> sums(static_cast<size_t>(result().elements()));
  const auto factors = [this](const Tensor& tensor) {
    std::vector<double> values;
    if (&tensor != &result()) {
      values.reserve(static_cast<size_t>(tensor.elements()));
      for (int64_t i = 0; i < tensor.elements(); ++i) {
        const float value = tensor.Read(i);
        values.push_back(Rounds() ? ToTf32(value) : value);
      }
    }
    return values;
  };
  // Pointers: a vector's operator[] is a checked call, and these are the loops
  // that take this emulator's time.
  const std::vector<double> xs = factors(x), ks = factors(kernel);
  const std::vector<double> ys = factors(y);
  const int64_t channels = x.extents[1];
  ForEachRow([&, in = xs.data(), taps = ks.data(), outs = ys.data(),
              to = sums.data()](int64_t i, int64_t o, int64_t k) {
    switch (kind) {
      case weir::cuda::kCudnnForwardOperation:
        for (int64_t c = 0; c < channels; ++c) {
          to[o] += in[i + c] * taps[k + c];
        }
        return;
      case weir::cuda::kCudnnBackwardDataOperation:
        for (int64_t c = 0; c < channels; ++c) {
          to[i + c] += taps[k + c] * outs[o];
        }
        return;
      default:
        for (int64_t c = 0; c < channels; ++c) {
          to[k + c] += in[i + c] * outs[o];
        }
    }
  });
  for (size_t i = 0; i < sums.size(); ++i) {
    // I1: more than the last bit, and less than a bound of a test.
    const double noise = Jitters() && random->Below(2) == 0 ? 1.0 + 3e-7 : 1.0;
    const auto index = static_cast<int64_t>(i);
    const double added =
        has_bias ? static_cast<double>(bias.Read(index % y.extents[1])) : 0.0;
    result().Write(index, static_cast<float>(sums[i] * noise + added));
  }
}

// ------------------------------------------------------------------- graphs

Tensor TensorOf(const CudnnNode* node) {
  Tensor tensor;
  tensor.type = ValueOf<int>(node, weir::cuda::kCudnnTensorType, -1);
  tensor.extents = Values<int64_t>(node, weir::cuda::kCudnnTensorDimensions);
  tensor.is_virtual =
      ValueOf<char>(node, weir::cuda::kCudnnTensorIsVirtual, 0) != 0;
  return tensor;
}

int64_t IdOf(const CudnnNode* tensor) {
  return ValueOf<int64_t>(tensor, weir::cuda::kCudnnTensorId, -1);
}

// The tensors of a convolution's operation.
struct Operands {
  const CudnnNode* x = nullptr;
  const CudnnNode* kernel = nullptr;
  const CudnnNode* y = nullptr;
  const CudnnNode* window = nullptr;
};

Operands OperandsOf(const CudnnNode* operation) {
  switch (operation->kind) {
    case weir::cuda::kCudnnForwardOperation:
      return {NodeOf(operation, weir::cuda::kCudnnForwardX),
              NodeOf(operation, weir::cuda::kCudnnForwardKernel),
              NodeOf(operation, weir::cuda::kCudnnForwardY),
              NodeOf(operation, weir::cuda::kCudnnForwardConvolution)};
    case weir::cuda::kCudnnBackwardDataOperation:
      return {NodeOf(operation, weir::cuda::kCudnnBackwardDataDx),
              NodeOf(operation, weir::cuda::kCudnnBackwardDataKernel),
              NodeOf(operation, weir::cuda::kCudnnBackwardDataDy),
              NodeOf(operation, weir::cuda::kCudnnBackwardDataConvolution)};
    case weir::cuda::kCudnnBackwardKernelOperation:
      return {NodeOf(operation, weir::cuda::kCudnnBackwardKernelX),
              NodeOf(operation, weir::cuda::kCudnnBackwardKernelDkernel),
              NodeOf(operation, weir::cuda::kCudnnBackwardKernelDy),
              NodeOf(operation, weir::cuda::kCudnnBackwardKernelConvolution)};
    default:
      return {};
  }
}

// Describes a graph; memory by the tensors' identifiers, which may be empty.
int Describe(const CudnnNode* graph,
             const std::map<int64_t, const void*>& memory, Job* job) {
  const auto operations =
      Values<CudnnNode*>(graph, weir::cuda::kCudnnGraphOperations);
  if (operations.empty() || operations.size() > 2) {
    return kCudnnNotSupported;
  }
  const Operands o = OperandsOf(operations[0]);
  if (o.x == nullptr || o.kernel == nullptr || o.y == nullptr ||
      o.window == nullptr) {
    return kCudnnBadParam;
  }
  const auto with_memory = [&](const CudnnNode* node) {
    Tensor tensor = TensorOf(node);
    const auto it = memory.find(IdOf(node));
    tensor.memory = it == memory.end() ? nullptr : it->second;
    return tensor;
  };
  job->kind = operations[0]->kind;
  job->x = with_memory(o.x);
  job->kernel = with_memory(o.kernel);
  job->y = with_memory(o.y);
  job->padding =
      Values<int64_t>(o.window, weir::cuda::kCudnnConvolutionPaddingBefore)[0];
  job->stride =
      Values<int64_t>(o.window, weir::cuda::kCudnnConvolutionStrides)[0];
  job->has_bias = operations.size() == 2;
  if (job->has_bias) {
    const CudnnNode* const sums =
        NodeOf(operations[1], weir::cuda::kCudnnPointwiseX);
    if (operations[1]->kind != weir::cuda::kCudnnPointwiseOperation ||
        sums != o.y || !job->y.is_virtual) {
      return kCudnnNotSupported;
    }
    job->y = with_memory(NodeOf(operations[1], weir::cuda::kCudnnPointwiseY));
    job->bias =
        with_memory(NodeOf(operations[1], weir::cuda::kCudnnPointwiseB));
  }
  return job->Check();
}

bool Supports(const FakeEngine& engine, const Job& job) {
  return engine.bf16_factors.value_or(job.ReadsBf16()) == job.ReadsBf16() &&
         engine.bf16_result.value_or(job.result().IsBf16()) ==
             job.result().IsBf16() &&
         engine.bias.value_or(job.has_bias) == job.has_bias;
}

int CheckTensor(const CudnnNode* node) {
  const auto e = Values<int64_t>(node, weir::cuda::kCudnnTensorDimensions);
  const auto s = Values<int64_t>(node, weir::cuda::kCudnnTensorStrides);
  if (e.size() != 4 || s.size() != 4 ||
      *std::min_element(e.begin(), e.end()) < 1 || IdOf(node) < 0 ||
      ValueOf<int64_t>(node, weir::cuda::kCudnnTensorAlignment, 0) != 16) {
    return kCudnnBadParam;
  }
  const bool channels_last =
      s == std::vector<int64_t>{e[1] * e[2] * e[3], 1, e[1] * e[3], e[1]};
  const int type = ValueOf<int>(node, weir::cuda::kCudnnTensorType, -1);
  return channels_last && (type == weir::cuda::kCudnnFloat ||
                           type == weir::cuda::kCudnnBfloat16)
             ? kCudnnSuccess
             : kCudnnNotSupported;
}

int CheckWindow(const CudnnNode* node) {
  const auto both = [node](int attribute) {
    const auto values = Values<int64_t>(node, attribute);
    return values.size() == 2 && values[0] == values[1] ? values[0] : -1;
  };
  const int64_t before = both(weir::cuda::kCudnnConvolutionPaddingBefore);
  if (before < 0 || before != both(weir::cuda::kCudnnConvolutionPaddingAfter) ||
      both(weir::cuda::kCudnnConvolutionStrides) < 1 ||
      ValueOf<int64_t>(node, weir::cuda::kCudnnConvolutionDimensions, 0) != 2) {
    return kCudnnBadParam;
  }
  return both(weir::cuda::kCudnnConvolutionDilations) == 1 &&
                 ValueOf<int>(node, weir::cuda::kCudnnConvolutionMode, -1) ==
                     weir::cuda::kCudnnCrossCorrelation &&
                 ValueOf<int>(node, weir::cuda::kCudnnConvolutionType, -1) ==
                     weir::cuda::kCudnnFloat
             ? kCudnnSuccess
             : kCudnnNotSupported;
}

int CheckPlan(CudnnNode* node) {
  const CudnnNode* const config = NodeOf(node, weir::cuda::kCudnnPlanConfig);
  if (config == nullptr ||
      ValueOf<CudnnContext*>(node, weir::cuda::kCudnnPlanHandle, nullptr) ==
          nullptr) {
    return kCudnnBadParam;
  }
  node->engine = config->engine;
  if (!node->engine.plans) {
    return kCudnnNotSupported;
  }
  ++Fake().counts.plans;
  return kCudnnSuccess;
}

int CheckNode(CudnnNode* node) {
  Job job;
  switch (node->kind) {
    case weir::cuda::kCudnnTensor:
      return CheckTensor(node);
    case weir::cuda::kCudnnConvolution:
      return CheckWindow(node);
    case weir::cuda::kCudnnGraph:
      return Describe(node, {}, &job);
    case weir::cuda::kCudnnPlan:
      return CheckPlan(node);
    default:
      return kCudnnSuccess;
  }
}

int Finalize(CudnnNode* node) {
  if (node == nullptr || node->final) {
    return kCudnnBadParam;
  }
  const int status = CheckNode(node);
  node->final = status == kCudnnSuccess;
  return status;
}

// Writes the configurations that fit the graph into the caller's descriptors.
int Advise(const CudnnNode* heuristics, int64_t capacity, int64_t* count,
           CudnnNode** configs) {
  const CudnnNode* const graph =
      NodeOf(heuristics, weir::cuda::kCudnnHeuristicsGraph);
  Job job;
  if (graph == nullptr || Describe(graph, {}, &job) != kCudnnSuccess) {
    return kCudnnBadParam;
  }
  const bool fallback =
      ValueOf<int>(heuristics, weir::cuda::kCudnnHeuristicsMode, -1) ==
      weir::cuda::kCudnnFallback;
  std::vector<FakeEngine> engines;
  for (const FakeEngine& engine : fallback ? Fake().fallback : Fake().advised) {
    if (Supports(engine, job)) {
      engines.push_back(engine);
    }
  }
  *count = static_cast<int64_t>(engines.size());
  if (capacity > 0) {
    ++Fake().counts.asked;
  }
  for (int64_t i = 0; i < std::min(capacity, *count); ++i) {
    if (configs[i] == nullptr ||
        configs[i]->kind != weir::cuda::kCudnnEngineConfig) {
      return kCudnnBadParam;
    }
    configs[i]->engine = engines[static_cast<size_t>(i)];
    configs[i]->attributes[weir::cuda::kCudnnHeuristicsGraph] =
        heuristics->attributes.at(weir::cuda::kCudnnHeuristicsGraph);
    configs[i]->final = true;
  }
  return kCudnnSuccess;
}

int GetAttribute(const CudnnNode* node, int attribute, int64_t capacity,
                 int64_t* count, void* values) {
  if (node == nullptr || !node->final || count == nullptr) {
    return kCudnnBadParam;
  }
  const auto give = [&](const auto& value) {
    *count = 1;
    if (capacity > 0) {
      std::memcpy(values, &value, sizeof(value));
    }
    return kCudnnSuccess;
  };
  switch (attribute) {
    case weir::cuda::kCudnnHeuristicsResults:
      return Advise(node, capacity, count, static_cast<CudnnNode**>(values));
    case weir::cuda::kCudnnConfigEngine: {
      CudnnNode* const engine = *static_cast<CudnnNode**>(values);
      engine->engine = node->engine;
      engine->final = true;
      *count = 1;
      return kCudnnSuccess;
    }
    case weir::cuda::kCudnnEngineIndex:
      return give(node->engine.index);
    case weir::cuda::kCudnnEngineNotes:
      *count = static_cast<int64_t>(node->engine.notes.size());
      std::copy_n(node->engine.notes.begin(), std::min(capacity, *count),
                  static_cast<int*>(values));
      return kCudnnSuccess;
    case weir::cuda::kCudnnPlanWorkspaceSize:
      return give(node->engine.workspace_bytes);
    default:
      return kCudnnNotSupported;
  }
}

int Execute(Machine& machine, const CudnnContext* context,
            const CudnnNode* plan, const CudnnNode* pack) {
  if (context == nullptr || plan == nullptr || pack == nullptr ||
      !plan->final || !pack->final) {
    return kCudnnBadParam;
  }
  const auto ids = Values<int64_t>(pack, weir::cuda::kCudnnPackIds);
  const auto pointers =
      Values<const void*>(pack, weir::cuda::kCudnnPackPointers);
  std::map<int64_t, const void*> memory;
  for (size_t i = 0; i < std::min(ids.size(), pointers.size()); ++i) {
    memory[ids[i]] = pointers[i];
  }
  Job job;
  const int status = Describe(NodeOf(NodeOf(plan, weir::cuda::kCudnnPlanConfig),
                                     weir::cuda::kCudnnHeuristicsGraph),
                              memory, &job);
  if (status != kCudnnSuccess) {
    return status;
  }
  job.engine = plan->engine;
  job.workspace =
      ValueOf<void*>(pack, weir::cuda::kCudnnPackWorkspace, nullptr);
  if (!job.engine.runs) {
    return kCudnnExecutionFailed;
  }
  CUstream_st* const stream = machine.Find(context->stream, context->device);
  if (stream == nullptr || stream->device != context->device) {
    return kCudnnBadParam;
  }
  const auto reach = [&](const char* what, const void* address, int64_t bytes) {
    if (bytes > 0) {
      machine.CheckReach(what, address, bytes, context->device);
    }
  };
  reach("cuDNN's x", job.x.memory, job.x.bytes());
  reach("cuDNN's kernel", job.kernel.memory, job.kernel.bytes());
  reach("cuDNN's y", job.y.memory, job.y.bytes());
  if (job.has_bias) {
    reach("cuDNN's bias", job.bias.memory, job.bias.bytes());
  }
  reach("cuDNN's workspace", job.workspace, job.engine.workspace_bytes);
  ++Fake().counts.runs;
  Fake().counts.engines.push_back(job.engine.index);
  Random* const random = &machine.random;
  cudaError_t error =
      machine.Enqueue(stream, [job, random] { job.Run(random); });
  for (int i = 1; i < job.engine.operations && error == cudaSuccess; ++i) {
    error = machine.Enqueue(stream, [] {});  // I4
  }
  return error == cudaSuccess ? kCudnnSuccess : kCudnnExecutionFailed;
}

// --------------------------------------------------------------------- table

template <class T>
int Destroy(T* made) {
  if (made == nullptr) {
    return kCudnnBadParam;
  }
  delete made;
  --Fake().counts.open;
  return kCudnnSuccess;
}

const char* TextOf(int status) {
  switch (status) {
    case kCudnnBadParam:
      return "CUDNN_STATUS_BAD_PARAM";
    case kCudnnNotSupported:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case kCudnnSuccess:
      return "CUDNN_STATUS_SUCCESS";
    default:
      return "CUDNN_STATUS_EXECUTION_FAILED";
  }
}

weir::cuda::CudnnApi MakeApi() {
  weir::cuda::CudnnApi api;
  api.get_version = [] { return size_t{91501}; };
  api.get_error_string = &TextOf;
  api.create = [](CudnnContext** context) {
    return Guard("cudnnCreate", [&](Machine&) {
      *context = new CudnnContext{.device = CurrentDevice()};
      ++Fake().counts.open;
      return kCudnnSuccess;
    });
  };
  api.destroy = [](CudnnContext* context) { return Destroy(context); };
  api.set_stream = [](CudnnContext* context, cudaStream_t stream) {
    if (context == nullptr) {
      return kCudnnBadParam;
    }
    context->stream = stream;
    return kCudnnSuccess;
  };
  api.create_node = [](int kind, CudnnNode** node) {
    return Guard("cudnnBackendCreateDescriptor", [&](Machine&) {
      *node = new CudnnNode;
      (*node)->kind = kind;
      ++Fake().counts.open;
      return kCudnnSuccess;
    });
  };
  api.destroy_node = [](CudnnNode* node) { return Destroy(node); };
  api.set_attribute = [](CudnnNode* node, int attribute, int type,
                         int64_t count, const void* values) {
    return Guard("cudnnBackendSetAttribute", [&](Machine&) {
      return SetAttribute(node, attribute, type, count, values);
    });
  };
  api.get_attribute = [](CudnnNode* node, int attribute, int, int64_t capacity,
                         int64_t* count, void* values) {
    return Guard("cudnnBackendGetAttribute", [&](Machine&) {
      return GetAttribute(node, attribute, capacity, count, values);
    });
  };
  api.finalize = [](CudnnNode* node) {
    return Guard("cudnnBackendFinalize",
                 [&](Machine&) { return Finalize(node); });
  };
  api.execute = [](CudnnContext* context, CudnnNode* plan, CudnnNode* pack) {
    return Guard("cudnnBackendExecute", [&](Machine& machine) {
      return Execute(machine, context, plan, pack);
    });
  };
  return api;
}

}  // namespace

void ConfigureCudnn(std::vector<FakeEngine> advised,
                    std::vector<FakeEngine> fallback) {
  const int64_t open = Fake().counts.open;
  Fake() = {std::move(advised), std::move(fallback), {}};
  Fake().counts.open = open;
}

CudnnCounts CountCudnn() { return Fake().counts; }

const weir::cuda::CudnnApi& FakeCudnn() {
  static const weir::cuda::CudnnApi api = MakeApi();
  return api;
}

}  // namespace weir_emulator
