// The way of a batch's features to the device.
//
// Place: Network has one. It alone knows whether features come as floats or as
// bytes, and whether they were sent ahead.
//
// Invariants
//   I1. Features that were sent ahead lie in memory of their own, since the
//       step before may still read its own.
//   I2. What was sent ahead is used for that batch alone, and once. A batch is
//       known by its address, so DropAhead comes before its memory changes.
// Threads: compatible.
// Owns/borrows: owns device memory; borrows the backend.
// Errors: INVALID_ARGUMENT  bytes where the backend shares the host's memory.
//         those of Backend::Allocate.
// Cost: what is sent ahead, or is bytes, is copied once more on the device.
#ifndef WORKER_MODEL_INPUT_STAGE_H_
#define WORKER_MODEL_INPUT_STAGE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/compute/backend.h"
#include "worker/model/train_step.h"

namespace weir {

class InputStage {
 public:
  // `width`: floats of one sample. `transfers`: see NetworkOptions.
  InputStage(int64_t width, bool transfers, Backend* backend)
      : width_(width), transfers_(transfers), backend_(backend) {}
  ~InputStage();
  InputStage(const InputStage&) = delete;
  InputStage& operator=(const InputStage&) = delete;

  // See Network::SendAhead.
  absl::Status SendAhead(const Features& features, int64_t rows);
  // Returns where operations called from here on find the features: `device`,
  // or the host's memory where that is shared.
  absl::StatusOr<const float*> Stage(const Features& features, int64_t rows,
                                     float* device);
  // Waits until the device is idle, and forgets what was sent ahead.
  void DropAhead();
  // Says that the memory at `device` is another one.
  void Forget() { staged_ = std::nullopt; }

 private:
  // A batch: what it consists of, and its rows.
  struct Batch {
    Features features;
    int64_t rows;
    bool operator==(const Batch&) const = default;
  };

  // Grows ahead_ to the batch.
  absl::Status Reserve(const Batch& batch);
  // Waits until no upload aside writes ahead_: other uploads do not follow it.
  void WaitForAhead();
  // In floats, which is what a backend copies.
  int64_t CopiedElements(const Batch& batch) const;
  void Copy(const Batch& batch, bool aside);

  const int64_t width_;
  const bool transfers_;
  Backend* const backend_;
  float* ahead_ = nullptr;  // device
  int64_t ahead_elements_ = 0;
  std::optional<Batch> sent_;       // what lies in ahead_ for the next step
  std::optional<Batch> staged_;     // without transfers: what lies at `device`
  float* value_of_byte_ = nullptr;  // device, [256]
  const float* host_value_of_byte_ = nullptr;
};

}  // namespace weir

#endif  // WORKER_MODEL_INPUT_STAGE_H_
