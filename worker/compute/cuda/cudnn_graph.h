// A convolution as a graph of cuDNN: the engines that can compute it, and plans
// that do.
//
// Place: CudnnConvolution decides which engine to take.
//
// Terms
//   engine  one of cuDNN's ways to compute a graph, with its settings.
//   plan    an engine that is ready to run.
//
// Invariants
//   I1. The name of an engine means the same engine wherever device, version of
//       cuDNN and problem are the same.
//   I2. A run of a plan allocates no device memory, so it can be captured.
// Threads: compatible.
// Errors: INTERNAL          cuDNN refused; names the call.
//         INVALID_ARGUMENT  an extent is too large for cuDNN.
#ifndef WORKER_COMPUTE_CUDA_CUDNN_GRAPH_H_
#define WORKER_COMPUTE_CUDA_CUDNN_GRAPH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/compute/cuda/cudnn_api.h"
#include "worker/compute/shapes.h"

namespace weir::cuda {

// All tensors have their channels last, kernels are [filters, kernel, kernel,
// channels], and sums are float32 whatever the types of what is read and
// written.
struct CudnnProblem {
  enum class Kind : int { kForward, kBackwardData, kBackwardKernel };

  Kind kind = Kind::kForward;
  Conv2dShape shape;
  bool bf16_factors = false;  // else float32
  bool bf16_result = false;   // else float32
  bool bias = false;          // of kForward: adds it, float32 [filters]
};

// Device memory, aligned to CudnnGraph::kAlignment. What a problem computes
// from is only read.
struct CudnnTensors {
  const void* x = nullptr;  // or dx
  const void* kernel = nullptr;
  const void* y = nullptr;     // or dy
  const void* bias = nullptr;  // null without a bias
  bool operator==(const CudnnTensors&) const = default;
};

// A descriptor of cuDNN. It keeps the first error until Finalize().
class CudnnDescriptor {
 public:
  CudnnDescriptor(const CudnnApi& api, CudnnKind kind);
  ~CudnnDescriptor();
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;

  void Set(CudnnAttribute attribute, CudnnType type, int64_t count,
           const void* values);
  void SetInt(CudnnAttribute attribute, CudnnType type, int value);
  void SetInts(CudnnAttribute attribute, const std::vector<int64_t>& values);
  void SetFloat(CudnnAttribute attribute, float value);
  void SetNode(CudnnAttribute attribute, const CudnnDescriptor& value);
  void SetContext(CudnnAttribute attribute, CudnnContext* context);
  // Returns how many values there are; 0 where cuDNN does not say.
  int64_t Get(CudnnAttribute attribute, CudnnType type, int64_t capacity,
              void* values) const;
  // `what` names the descriptor in errors.
  absl::Status Finalize(const char* what);
  CudnnNode* node() const { return node_; }

 private:
  const CudnnApi& api_;
  CudnnNode* node_ = nullptr;
  int status_ = kCudnnSuccess;
};

class CudnnGraph;

struct CudnnEngine {
  std::string name;           // I1
  bool tensor_cores = false;  // on float32: rounds factors to TF32
  bool reduces = false;       // rounds factors or sums below what was asked for
  bool deterministic = false;
  bool transforms = false;  // tiles of images, by FFT
  std::unique_ptr<CudnnDescriptor> config;
};

class CudnnPlan {
 public:
  int64_t workspace_bytes() const { return workspace_bytes_; }
  // Enqueues on the context's stream. `workspace` has workspace_bytes().
  absl::Status Run(CudnnContext* context, const CudnnTensors& tensors,
                   void* workspace);

 private:
  friend class CudnnGraph;
  CudnnPlan(const CudnnApi& api, std::shared_ptr<const CudnnGraph> graph,
            CudnnEngine engine);
  absl::Status MakePack(const CudnnTensors& tensors, void* workspace);

  const CudnnApi& api_;
  const std::shared_ptr<const CudnnGraph> graph_;
  const CudnnEngine engine_;
  CudnnDescriptor plan_;
  int64_t workspace_bytes_ = 0;
  // The arguments of the last run, which are nearly always those of the next.
  std::unique_ptr<CudnnDescriptor> pack_;
  CudnnTensors tensors_;
  void* workspace_ = nullptr;
};

class CudnnGraph : public std::enable_shared_from_this<CudnnGraph> {
 public:
  static constexpr int64_t kAlignment = 16;  // bytes

  // Borrows `api` and `context` for its own life and that of its plans.
  static absl::StatusOr<std::shared_ptr<CudnnGraph>> Create(
      const CudnnApi& api, CudnnContext* context, const CudnnProblem& problem);

  // All that cuDNN advises, what it takes for the fastest first.
  std::vector<CudnnEngine> Engines() const;
  absl::StatusOr<std::unique_ptr<CudnnPlan>> MakePlan(CudnnEngine engine) const;

 private:
  CudnnGraph(const CudnnApi& api, CudnnContext* context,
             CudnnProblem::Kind kind)
      : api_(api), context_(context), kind_(kind) {}

  CudnnDescriptor* Add(CudnnKind kind);
  absl::StatusOr<CudnnDescriptor*> AddTensor(
      int64_t id, bool bf16, const std::vector<int64_t>& extents,
      bool is_virtual);
  absl::StatusOr<CudnnDescriptor*> AddWindow(const Conv2dShape& shape);
  absl::StatusOr<CudnnDescriptor*> AddBias(const Conv2dShape& shape,
                                           const CudnnDescriptor& sums,
                                           const CudnnDescriptor& y);
  absl::Status Build(const CudnnProblem& problem);
  void AddEngines(int mode, std::vector<CudnnEngine>* engines) const;

  const CudnnApi& api_;
  CudnnContext* const context_;
  const CudnnProblem::Kind kind_;
  std::vector<std::unique_ptr<CudnnDescriptor>> parts_;
  CudnnDescriptor* graph_ = nullptr;
};

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_CUDNN_GRAPH_H_
