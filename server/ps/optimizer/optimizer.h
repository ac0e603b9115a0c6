// Optimizers: how a gradient moves a segment's values.
//
// Place: the store calls Apply for each segment of a block, under the block's
// lock (or without it: lock_free). An optimizer knows no block, variable or
// step count; it is made from a parameter group's OptimizerSpec.
//
// Terms
//   state  an array beside the values, of the same length, that the optimizer
//          keeps between steps (momentum, second moments).
//   t      updates of this segment before this one, 0 first. In async every
//          worker's push counts; see docs/optimizers.md.
//
// Invariants
//   I1. Elementwise: element i of the result depends on element i of the
//       arguments alone, and has the same bits wherever a range is cut and on
//       every SIMD level (common/math/simd.h).
//   I2. Scalars are computed in double and rounded to float once; arrays in
//       float, in the order of operations of PyTorch 1.13's single-tensor CPU
//       code (FTRL: TensorFlow's kernel).
//   I3. Values, state and t are the whole state: restored, the next step has
//       the same bits.
// Threads: immutable, safe. Apply may race on values and state on purpose:
//   WEIR_HOGWILD in common/math/simd.h.
// Errors: INVALID_ARGUMENT names the field's path, the value and its range.
// Cost: one pass over memory; bench/store/store_kernels_bench.cc.
#ifndef SERVER_PS_OPTIMIZER_OPTIMIZER_H_
#define SERVER_PS_OPTIMIZER_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"

namespace weir {

struct StepContext {
  uint64_t step = 0;  // t
  double learning_rate = 0.0;
  // Set when it came with the push; replaces the optimizer's own. Optimizers
  // without weight decay (ftrl, moving_average) ignore it.
  std::optional<double> weight_decay = std::nullopt;
  // Set when it came with the push; replaces the momentum, or beta1 of adam and
  // adamw. REQUIRES: CheckHyper was OK (proto/job/push_checks.h).
  std::optional<double> momentum = std::nullopt;
};

struct StateSpec {
  std::string name;      // [a-z_]+; names the array in checkpoints
  float initial = 0.0f;  // of every element, before step 0
  bool operator==(const StateSpec&) const = default;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // The member's name: "sgd", "adam", ...
  const std::string& name() const { return name_; }
  // At most kMaxStateArrays, in the order in which Apply takes them.
  const std::vector<StateSpec>& state() const { return state_; }

  // Moves values[0..count) and state[k][0..count) by one step.
  // `gradient` is count little-endian floats at any address. No array may
  // overlap another.
  // REQUIRES: gradient finite; learning_rate finite and >= 0.
  virtual void Apply(const StepContext& context, float* values,
                     float* const* state, const char* gradient,
                     int64_t count) const = 0;

  static constexpr int kMaxStateArrays = 3;

 protected:
  Optimizer(std::string name, std::vector<StateSpec> state)
      : name_(std::move(name)), state_(std::move(state)) {}

 private:
  const std::string name_;
  const std::vector<StateSpec> state_;
};

// The optimizer that `spec` asks for; it fills in what is not set. `field_path`
// ("optimizer", "parameter_group[2].optimizer") is where it stands, for
// messages.
absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(
    const OptimizerSpec& spec, const std::string& field_path);

// The optimizer of buffers: value += rate * (sample - value).
// REQUIRES: rate is in [0, 1].
std::unique_ptr<Optimizer> CreateMovingAverage(double rate);

}  // namespace weir

#endif  // SERVER_PS_OPTIMIZER_OPTIMIZER_H_
