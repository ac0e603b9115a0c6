// A model that trains: a graph of layers with memory, forward and backward.
//
// Place: the train loop, the evaluator and predict see the model only through
// this class. Parameters and gradients live on the host, in flat buffers laid
// out by Layout, so that blocks are pulled into one and pushed from the other
// without a copy; a backend with memory of its own gets mirrors of both.
//
// Terms
//   variable  an index into variables(). They are declared in the order in
//             which forward first reads them, so blocks in flat order come in
//             the right order to pull; backward finishes them from the end.
//   rows      samples of this call; any number >= 1. A step's result does not
//             depend on earlier calls.
//
// Invariants
//   I1. A step overwrites the gradient of every variable exactly once: of a
//       trained one the gradient of the mean loss, of a buffer the batch's
//       sample. Padding between variables is never touched.
//   I2. TrainStep is a pure function of (parameters, features, labels, tables,
//       rows, seed), bit for bit, on one kind of machine and thread count.
// Threads: compatible; hooks run on the calling thread.
// Owns/borrows: owns activations; borrows backend, parameters and gradients.
// Errors: INVALID_ARGUMENT     a spec, a label or a layout that does not fit.
//         FAILED_PRECONDITION  not bound to what the call needs.
//         RESOURCE_EXHAUSTED   no memory for activations.
//         INTERNAL             the backend failed.
// Cost: memory is allocated when `rows` exceeds every call before, else never.
#ifndef WORKER_MODEL_NETWORK_H_
#define WORKER_MODEL_NETWORK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/layout.h"
#include "proto/job_spec.pb.h"
#include "worker/compute/backend.h"
#include "worker/model/graph.h"
#include "worker/model/input_stage.h"
#include "worker/model/step_memory.h"
#include "worker/model/table_stage.h"
#include "worker/model/train_step.h"

namespace weir {

struct NetworkOptions {
  // Rows to allocate for at once; 0: at the first call.
  int64_t rows_reserved = 0;
  // False for benchmarks of compute alone. A device with memory of its own then
  // takes the values at Bind, takes a batch again only when its address
  // changes, and keeps the gradients.
  bool transfers = true;
  // True: gradients stay in memory of the backend, even where it shares the
  // host's, and Bind's `gradients` is not used. Replicas take them from there.
  bool keeps_gradients = false;
  // What the model may look up: the job's tables, the data's features.
  SparseSpec sparse = {};
};

struct EvaluateResult {
  // [rows, output_width], row-major: logits or predictions, the loss's input.
  // Valid until the next call.
  std::span<const float> outputs;
  double loss_sum = 0.0;  // over rows; 0 without labels
  int64_t correct = 0;
};

class Network {
 public:
  // `sample_shape`: features without the batch, images [channels, height,
  // width]. Errors name the field: "model.layer[2] 'conv1': ...".
  static absl::StatusOr<std::unique_ptr<Network>> Create(
      const Model& spec, const std::vector<int64_t>& sample_shape,
      Backend* backend, const NetworkOptions& options);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // In declared order = forward order, initialisers resolved, group 0.
  const std::vector<VariableSpec>& variables() const {
    return graph_.variables;
  }
  // The tables whose rows TrainStep and Evaluate need: fill a TableBatch by
  // each one's `uses`.
  const std::vector<GraphTable>& tables() const { return graph_.tables; }
  LossKind loss() const { return graph_.loss; }
  int64_t feature_elements() const { return graph_.tensors[0].info.elements(); }
  int64_t output_width() const { return graph_.output_width(); }
  // Floats of one sample's label.
  int64_t label_width() const { return graph_.label_width(); }
  // INVALID_ARGUMENT if the loss does not know this label. A step refuses it,
  // too, but only knows its row of the batch.
  absl::Status CheckLabel(float label) const;

  // Takes both buffers, of layout.flat_elements() floats each; they must live
  // until the next Bind or the end. With null `gradients` it can only evaluate.
  // With null `parameters` values come by StoreValues.
  absl::Status Bind(const Layout& layout, float* parameters, float* gradients);

  // Stores values from `begin` of the flat space on. Any thread may call it.
  // REQUIRES: bound without parameters; the values stay until a step's
  //   `before_layer_parameters` has returned for their variable, and the next
  //   ones come after its gradient. Errors: INTERNAL.
  absl::Status StoreValues(int64_t begin, HostPieces values) {
    return backend_->UploadNow(parameters_ + begin, values);
  }

  // Takes features [rows, feature_elements], labels [rows, label_width] and an
  // input for each of tables(). A model without variables need not be bound.
  // Bytes only where the backend has memory of its own.
  absl::StatusOr<StepResult> TrainStep(const Features& features,
                                       const float* labels, int64_t rows,
                                       uint64_t contribution_seed,
                                       const StepHooks& hooks,
                                       std::span<const TableInput> tables = {});

  // Sends the features of the next step ahead, beside this one, where the
  // backend has memory of its own. They stay unchanged until that step ends, or
  // Reset() returns.
  // REQUIRES: no step is under way, or one of its gradients is ready.
  absl::Status SendAhead(const Features& features, int64_t rows) {
    return input_.SendAhead(features, rows);
  }

  // Waits until the device is idle, and forgets what was sent ahead and what
  // failed. It comes between a step that failed and the next one, and before
  // the memory of a batch that was sent ahead is used for another one.
  void Reset() {
    input_.DropAhead();
    backend_->TakeStatus().IgnoreError();
  }

  // Runs forward without dropout and with moving statistics. With null `labels`
  // only the outputs are computed.
  absl::StatusOr<EvaluateResult> Evaluate(
      const Features& features, const float* labels, int64_t rows,
      std::span<const TableInput> tables = {});

 private:
  friend class Replicas;  // drives the pieces of a step on many networks

  // A gradient on its way to where the hooks' receiver reads it.
  struct Pending {
    int variable;   // or -1 - table
    uint64_t mark;  // it is there when the queue has passed this
  };

  using BeforeRead = std::function<absl::Status(int variable)>;

  // A captured step begins when the last value is there; otherwise forward runs
  // while values arrive. For more than 4 MiB of values that overlap saves more
  // than a capture does.
  static constexpr int64_t kCaptureElementsMax = int64_t{1} << 20;

  Network(Graph graph, Backend* backend, const NetworkOptions& options);

  absl::Status CheckBatch(const float* labels, int64_t rows) const;
  absl::Status CheckTraining(const float* labels, int64_t rows) const;
  // Makes room for a step of `rows`.
  absl::Status Reserve(int64_t rows, bool training);
  // Points the contexts at what Reserve has moved.
  void PointMemory(bool training);
  void StageLabels(const float* labels);
  void PointContexts(const float* staged, bool training, uint64_t seed);

  // The pieces of a step, in the order of their calls.
  // Makes room and sends the batch; `labels` may be null.
  absl::Status BeginStep(const Features& features, const float* labels,
                         int64_t rows, std::span<const TableInput> tables,
                         bool training, uint64_t seed);
  // Waits until the host has the values and sends them to the device.
  absl::Status Fetch(int variable, const BeforeRead& before);
  absl::Status FetchOf(size_t node, bool training, const BeforeRead& before);
  void ForwardOf(size_t node);
  absl::Status Forward(bool training, const BeforeRead& before);
  void ComputeLoss(bool training);
  // Whether backward runs the node.
  bool Trains(size_t node) const;
  void BackwardOf(size_t node);
  // Downloads the node's gradients, unless they stay, and marks them.
  void SendGradients(size_t node);
  // `hooks` may be null: nothing is published.
  absl::Status Backward(const StepHooks* hooks);
  // Waits for the oldest marked gradient and forgets it.
  absl::Status TakeGradient();
  // Calls the hooks for the gradients that the queue has passed. With `wait` it
  // waits until the queue has passed all.
  absl::Status Publish(const StepHooks& hooks, bool wait);
  // Waits for the queue. Returns the sums of row_loss and row_correct.
  std::pair<double, int64_t> SumRowResults();

  // Runs forward, loss and backward, one operation at a time or captured.
  absl::Status RunStep(const StepHooks& hooks);
  bool WantsCapture(const StepHooks& hooks) const;
  void Capture();
  void DropCapture();

  // Constant after construction.
  Graph graph_;
  Backend* const backend_;
  const NetworkOptions options_;

  InputStage input_;
  TableStage tables_;
  StepMemory memory_;

  // Set by Bind.
  float* host_parameters_ = nullptr;
  float* host_gradients_ = nullptr;
  float* parameters_ = nullptr;  // device
  float* gradients_ = nullptr;   // device
  std::vector<int64_t> begins_;  // flat_begin by variable
  int64_t parameter_elements_ = 0;

  std::vector<LayerContext> contexts_;    // by node
  std::vector<uint64_t> keys_;            // by node: of (step seed, layer)
  const float* staged_labels_ = nullptr;  // host, and their rows
  int64_t staged_label_rows_ = 0;
  // Where Fetch puts outputs and rows of a device with memory of its own.
  std::vector<float> host_outputs_, host_row_loss_, host_row_correct_;

  // The step under way.
  int64_t rows_ = 0;
  const float* labels_ = nullptr;  // device
  std::deque<Pending> pending_;    // gradients under way, in backward's order

  // The rows of the newest step that was not captured, and of the captured one;
  // 0: none. A second step of the same rows is worth a capture.
  int64_t plain_rows_ = 0;
  int64_t captured_rows_ = 0;
  bool can_capture_ = true;  // false once the backend has refused
  std::vector<Pending> captured_marks_;
};

}  // namespace weir

#endif  // WORKER_MODEL_NETWORK_H_
