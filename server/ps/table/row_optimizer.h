// Row optimizers: how a gradient moves a row of a table. Only rows with a
// gradient move ("lazy").
//
// Place: the table calls Apply for the rows of one stripe, under its lock. An
// optimizer knows no ids, stripes or shards. It is made from the TableOptimizer
// of a table.
//
// Equations
//   sgd      w -= lr g
//   adagrad  s += g^2;  w -= lr g / (sqrt(s) + epsilon)
//   rowwise_adagrad, with one accumulator for the row
//            n += mean over the row of g^2;  w -= lr / (sqrt(n) + epsilon) g
//   adam     m += (g - m) (1 - beta1);  v += (g^2 - v) (1 - beta2)
//            w -= lr sqrt(1 - beta2^(t+1)) / (1 - beta1^(t+1))
//                 m / (sqrt(v) + epsilon)
//            t counts the table's updates, or, per_row_step, each row's own.
//   ftrl     those of server/ps/optimizer/ftrl.cc
//   ftrl with l21 > 0, which sets whole rows to zero: n and z as in ftrl, then
//            s = sign(z) max(|z| - l1, 0)
//            q = n^p / lr + 2 (l2 + beta / (2 lr))
//            w = -max(0, 1 - sqrt(dim) l21 / |s|) s / q
//            with |s| the row's Euclidean norm. This w is the minimiser of
//            z w + l1 |w|_1 + sqrt(dim) l21 |w| + w^2 (n^p / lr + ...) / 2
//            where n is the same in all columns, and the usual approximation
//            elsewhere.
//
// Terms
//   state  what the optimizer keeps in a row behind its values: dim floats, or
//          one.
//   t      updates of the table before this one, 0 first; `updates` is the same
//          for one row.
//
// Invariants
//   I1. sgd, adagrad and ftrl have the bits of the dense optimizers
//       (server/ps/optimizer/step_kernels.h); adam is PyTorch's SparseAdam.
//   I2. The same bits on every SIMD level. Sums over a row are in double, in
//       the order of its columns.
//   I3. A row's floats, its `updates` and t are the whole state.
// Threads: immutable, safe.
// Errors: INVALID_ARGUMENT names the field's path, the value and its range.
// Source: McMahan et al., "Ad Click Prediction", KDD 2013 (FTRL); Mudigere et
//   al., "Software-Hardware Co-design for Fast and Scalable Training of Deep
//   Learning Recommendation Models", ISCA 2022, section 4 (row-wise Adagrad);
//   Yue et al., "Adaptive Optimizers with Sparse Group Lasso for Neural
//   Networks in CTR Prediction", ECML PKDD 2021 (group lasso).
#ifndef SERVER_PS_TABLE_ROW_OPTIMIZER_H_
#define SERVER_PS_TABLE_ROW_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"

namespace weir {

struct RowState {
  std::string name;  // [a-z_]+; names the array in checkpoints
  float initial = 0.0f;
  bool one_float = false;  // for the whole row; else one for each column
  bool operator==(const RowState&) const = default;
};

struct RowStep {
  double learning_rate = 0.0;
  uint64_t step = 0;  // t
};

// Row i is rows[i]: values [dim], then the state. Its gradient is dim
// little-endian floats at any address. updates[i] is the row's own count.
struct RowBatch {
  float* const* rows = nullptr;
  const char* const* gradients = nullptr;
  const uint32_t* updates = nullptr;
  int count = 0;
  int dim = 0;
};

class RowOptimizer {
 public:
  virtual ~RowOptimizer() = default;
  RowOptimizer(const RowOptimizer&) = delete;
  RowOptimizer& operator=(const RowOptimizer&) = delete;

  const std::string& name() const { return name_; }
  // In the order in which they lie in a row.
  const std::vector<RowState>& state() const { return state_; }
  // Floats of a row: values and state.
  int row_floats(int dim) const;
  // Writes the initial values behind the values.
  void FillInitialState(int dim, float* row) const;

  // Moves the rows, one after another: a row that comes twice moves twice.
  // REQUIRES: gradients finite; learning_rate finite and >= 0.
  virtual void Apply(const RowStep& step, const RowBatch& batch) const = 0;

 protected:
  RowOptimizer(std::string name, std::vector<RowState> state)
      : name_(std::move(name)), state_(std::move(state)) {}

 private:
  const std::string name_;
  const std::vector<RowState> state_;
};

// The optimizer that `spec` asks for; it fills in what is not set. `path`
// ("table \"user\": optimizer") begins every message.
absl::StatusOr<std::unique_ptr<RowOptimizer>> CreateRowOptimizer(
    const TableOptimizer& spec, const std::string& path);

}  // namespace weir

#endif  // SERVER_PS_TABLE_ROW_OPTIMIZER_H_
