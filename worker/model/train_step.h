// What goes into a training step and comes out of it: hooks for the values that
// arrive and the gradients that leave meanwhile, tables, the result.
//
// Place: Network and Replicas take these; the train loop and the feed of tables
// fill them.
// Threads: compatible; hooks run on the calling thread.
#ifndef WORKER_MODEL_TRAIN_STEP_H_
#define WORKER_MODEL_TRAIN_STEP_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "worker/model/table_batch.h"

namespace weir {

// What a training step calls while it runs. Any may be empty. An error ends the
// step, which returns it.
struct StepHooks {
  // Called before forward first reads a variable. It may block until the values
  // are in `parameters`. Not called for buffers: training does not read them.
  std::function<absl::Status(int variable)> before_layer_parameters;
  // Called when the variable's range of `gradients` is final: during backward,
  // once for every variable, buffers included.
  std::function<absl::Status(int variable)> gradient_ready;
  // Called when `gradients` of a table's input are final: once for every table.
  std::function<absl::Status(int table)> table_gradient_ready = {};
};

// The features of a batch, [rows, feature_elements]: floats, or bytes that
// stand for floats. Three more can be read behind the last byte: a device
// copies whole floats.
struct Features {
  // NOLINTNEXTLINE(google-explicit-constructor): a batch of floats is one.
  Features(const float* all) : floats(all) {}
  Features(const uint8_t* all, const float* values)
      : bytes(all), value_of_byte(values) {}
  Features From(int64_t element) const {
    Features rest = *this;
    rest.floats += floats == nullptr ? 0 : element;
    rest.bytes += bytes == nullptr ? 0 : element;
    return rest;
  }
  bool operator==(const Features&) const = default;

  const float* floats = nullptr;
  const uint8_t* bytes = nullptr;        // where floats is null
  const float* value_of_byte = nullptr;  // [256]
};

// A batch's part of one table; borrowed until the step ends.
struct TableInput {
  const TableBatch* batch = nullptr;  // filled for the table's uses
  const float* rows = nullptr;        // [batch->ids(), dim]
  // [batch->ids(), dim]: overwritten by a training step. May be null in
  // evaluation.
  float* gradients = nullptr;
};

struct StepResult {
  double loss = 0.0;    // mean over rows
  int64_t correct = 0;  // rows predicted right; 0 for mean squared error
};

}  // namespace weir

#endif  // WORKER_MODEL_TRAIN_STEP_H_
