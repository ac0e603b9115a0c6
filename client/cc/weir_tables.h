// Embedding tables of the public C++ SDK: rows of floats by 64-bit id, spread
// over the servers by a hash.
//
// Place: part of client/cc/weir.h, which brings it. Standard types only.
//
// Terms
//   row    the `dim` floats of one id. Its initial values are a pure function
//          of (seed, table, id). A server keeps it from the first lookup that
//          trains.
#ifndef CLIENT_CC_WEIR_TABLES_H_
#define CLIENT_CC_WEIR_TABLES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace weir::sdk {

// How a gradient moves its row (docs/optimizers.md). A row without a gradient
// does not change. Each kind reads its own members.
struct RowOptimizer {
  // kRowwiseAdagrad has one accumulator a row; kAdam is torch's SparseAdam.
  enum class Kind { kSgd, kAdagrad, kRowwiseAdagrad, kAdam, kFtrl };
  Kind kind = Kind::kSgd;
  double learning_rate = 0.01;
  // kAdagrad, kRowwiseAdagrad: unset is 0; kFtrl: unset is 0.1.
  std::optional<double> initial_accumulator = std::nullopt;
  // kAdagrad, kRowwiseAdagrad: unset is 1e-10; kAdam: 1e-8.
  std::optional<double> epsilon = std::nullopt;
  double beta1 = 0.9;                 // kAdam
  double beta2 = 0.999;               // kAdam
  bool per_row_step = false;          // kAdam: t counts the row's own updates
  double learning_rate_power = -0.5;  // kFtrl, like all members below
  double l1 = 0.0;
  double l2 = 0.0;
  double l2_shrinkage = 0.0;
  double beta = 0.0;
  double l21 = 0.0;  // > 0: group lasso, whole rows become 0
};

struct Table {
  std::string name;  // [a-z0-9_]{1,64}; unique in the job
  int dim = 0;       // floats of a row, at least 1
  RowOptimizer optimizer = {};
  // The values of new rows: uniform in [-init_scale, init_scale), normal with
  // init_scale as the standard deviation, or init_scale everywhere.
  enum class Init { kUniform, kNormal, kConstant };
  Init init = Init::kUniform;
  float init_scale = 0.05f;
  // Which ids get a row: an id at its admission_count-th touch (at most 255),
  // or at each touch with admission_probability; give one of the two. An id
  // without a row reads its initial values, and its gradients are dropped.
  uint32_t admission_count = 0;
  double admission_probability = 0.0;
  uint64_t admission_filter_bytes = 0;  // 0: 16 MiB on each server
  // Which rows are dropped: those that were not touched for so many pushes (in
  // sync, steps), or for so many seconds; give one of the two.
  uint32_t expiry_steps = 0;
  uint32_t expiry_seconds = 0;
  uint64_t memory_bytes = 0;  // of the table on one server; 0: no bound
  // Which row is dropped first when memory_bytes are used up: the one least
  // frequently touched if true, else the one least recently touched.
  bool least_frequent = false;
  // The encoding of what travels: "f32", "bf16", "f16" or "int8".
  std::string lookup_encoding = "f32";
  std::string update_encoding = "f32";
};

// Ids in any order, with or without repeats; `rows` gets one row for each, in
// the same order.
struct RowsWanted {
  std::string table;
  std::span<const uint64_t> ids;
  std::span<float> rows;  // [ids, dim], row-major
};

// Gradients of rows, in any order. The gradients of one id are summed in
// float64, in the order given, and rounded once, also when they stand in
// several lists of one table.
struct RowGradients {
  std::string table;
  std::span<const uint64_t> ids;
  std::span<const float> gradients;  // [ids, dim], row-major
};

// Replaces a table's learning rate, for one push only.
struct TableSettings {
  std::string table;
  double learning_rate = 0.0;
};

// Rows on one server.
struct TableStatus {
  std::string name;
  uint64_t rows = 0;
  uint64_t bytes = 0;
};

}  // namespace weir::sdk

#endif  // CLIENT_CC_WEIR_TABLES_H_
