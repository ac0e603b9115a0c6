// Convolutions by cuDNN.
//
// Place: Operations makes one where a cuDNN is installed. It chooses an engine
// once for each operation and shape and keeps its plan, since a job has few.
//
// Terms
//   way        how an engine is used: what types it reads and writes, and
//              whether it adds the bias. In bf16 an engine may round factors to
//              bfloat16 or only to TF32, whichever is faster.
//   candidate  an engine in a way.
//
// Invariants
//   I1. An engine keeps the precision: in fp32 it rounds no factor, in tf32 to
//       no less than TF32, in bf16 to no less than bfloat16. Sums are float32.
//       With `deterministic` it gives the same bits always, and its choice
//       follows from the shape and the version of cuDNN, unless the device
//       lacks memory for it, which the log says. Without, candidates are timed
//       on the tensors of the call that needs the plan first.
//   I2. Where there is no such engine, or cuDNN fails while it is asked, the
//       log says so once and Weir's own implementation computes that operation
//       of that shape.
//   I3. A call whose plan was made allocates nothing, so it can be captured.
// Threads: compatible.
// Errors: INTERNAL  cuDNN failed to run a plan; names operation and shape.
//         others    those of Convolution.
// Cost: every call transposes the kernel. An engine that writes bfloat16 takes
//   one more pass over the result.
#ifndef WORKER_COMPUTE_CUDA_CUDNN_CONVOLUTION_H_
#define WORKER_COMPUTE_CUDA_CUDNN_CONVOLUTION_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/compute/cuda/bf16_copies.h"
#include "worker/compute/cuda/convolution.h"
#include "worker/compute/cuda/cudnn_api.h"
#include "worker/compute/cuda/cudnn_graph.h"
#include "worker/compute/cuda/device_memory.h"
#include "worker/compute/cuda/engine_choices.h"
#include "worker/compute/operations.h"

namespace weir::cuda {

class CudnnConvolution : public Convolutions {
 public:
  // With `deterministic`: as much as Weir's own implementation takes for
  // columns, whatever the device has free.
  static constexpr int64_t kWorkspaceBytes = Convolution::kColumnBytesMax;
  // Of those that transform, and of timed ones as far as it is not over a
  // quarter of what is free.
  static constexpr int64_t kLargeWorkspaceBytes = int64_t{1} << 30;

  struct Options {
    CudnnApi api;
    Convolutions* own = nullptr;   // borrowed; computes what cuDNN does not
    Bf16Copies* copies = nullptr;  // borrowed; only in bf16
    bool tf32 = false;             // else fp32, or bf16 where there are copies
    bool deterministic = false;
    std::string choices_file = {};  // of EngineChoices; empty: none
  };

  // For the current device. Errors: INTERNAL  cuDNN does not start.
  static absl::StatusOr<std::unique_ptr<CudnnConvolution>> Create(
      const Options& options);
  ~CudnnConvolution() override;
  CudnnConvolution(const CudnnConvolution&) = delete;
  CudnnConvolution& operator=(const CudnnConvolution&) = delete;

  absl::Status Run(cudaStream_t stream, const op::Conv2dForward& o) override;
  absl::Status Run(cudaStream_t stream,
                   const op::Conv2dBackwardData& o) override;
  absl::Status Run(cudaStream_t stream,
                   const op::Conv2dBackwardKernel& o) override;
  int64_t scratch_bytes() const override {
    return scratch_.bytes() + options_.own->scratch_bytes();
  }

 private:
  struct Way {
    bool bf16_factors = false;  // else float32
    bool bf16_result = false;   // float32 is made from it
    bool fused_bias = false;    // else a bias is a pass of its own
  };
  // One call of one of the three operations. The pointer that it writes is
  // `result`, and null among the others.
  struct Job {
    CudnnProblem::Kind kind;
    Conv2dShape shape;
    const float* x = nullptr;
    const float* kernel = nullptr;
    const float* y = nullptr;
    const float* bias = nullptr;
    float* result = nullptr;

    int64_t result_elements() const;
  };
  struct Scratch {
    DeviceScratch kernel;     // as cuDNN lays it out, read or written
    DeviceScratch result;     // in bfloat16
    DeviceScratch workspace;  // of the engine
    int64_t bytes() const {
      return kernel.bytes() + result.bytes() + workspace.bytes();
    }
    absl::Status Reserve(const Job& job, const Way& way,
                         int64_t workspace_bytes);
  };
  struct Candidate {
    Way way;
    std::string name;  // of the way and the engine
    std::shared_ptr<const CudnnGraph> graph;
    CudnnEngine engine;
  };
  struct Plan {
    Way way;
    std::string name;                 // for messages
    std::unique_ptr<CudnnPlan> plan;  // null: Weir's own implementation
  };
  // The kind, whether there is a bias, and the members of the shape.
  using Key = std::array<int64_t, 10>;

  explicit CudnnConvolution(const Options& options)
      : options_(options), choices_(options.choices_file) {}

  // OK, or INTERNAL "<what>: <cuDNN's text>".
  absl::Status Check(int status, const char* what) const;
  bool bf16() const { return options_.copies != nullptr; }
  const char* precision() const;

  Plan* FindPlan(cudaStream_t stream, const Job& job);
  absl::StatusOr<Plan> MakePlan(cudaStream_t stream, const Job& job);
  // The ways that may be taken, the one that is likely the fastest first.
  std::vector<Way> Ways(const Job& job) const;
  // All that I1 allows.
  std::vector<Candidate> Candidates(const Job& job);
  // With `deterministic`.
  absl::StatusOr<Plan> TakeKnown(const Job& job,
                                 std::vector<Candidate> candidates);
  // The plan of the first that can be made.
  absl::StatusOr<Plan> TakeFirst(std::vector<Candidate> candidates,
                                 int64_t workspace_bytes_max);
  absl::StatusOr<Plan> TakeFastest(cudaStream_t stream, const Job& job,
                                   std::vector<Candidate> candidates,
                                   std::string* name);
  // What a run takes, or an error. It gives up, with the least of the runs so
  // far, where the first ones take far longer than `best`.
  absl::StatusOr<float> Milliseconds(cudaStream_t stream, const Job& job,
                                     const Plan& plan, Scratch* scratch,
                                     float best);
  absl::StatusOr<float> MillisecondsOnce(cudaStream_t stream, const Job& job,
                                         const Plan& plan, Scratch* scratch);

  // Enqueues the plan and the passes around it.
  absl::Status Enqueue(cudaStream_t stream, const Job& job, const Plan& plan,
                       Scratch* scratch);
  absl::StatusOr<const void*> Factor(cudaStream_t stream, const Way& way,
                                     const float* x, int64_t count);
  absl::Status UseStream(cudaStream_t stream);
  template <class Op>
  absl::Status RunJob(cudaStream_t stream, const Op& o, const Job& job);

  const Options options_;
  std::string device_;  // its name and cuDNN's version, for the file
  EngineChoices choices_;
  CudnnContext* context_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  Scratch scratch_;
  std::map<Key, Plan> plans_;
};

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_CUDNN_CONVOLUTION_H_
