// Embedding tables of the public C++ SDK: rows of floats by 64-bit id, spread
// over the servers by a hash.
//
// Place: part of client/cc/weir.h, which includes it. Standard types only.
//
// Terms
//   row    `dim` floats of one id. It begins as a pure function of (seed,
//   table,
//          id), and is kept on a server from the first lookup that trains.
#ifndef CLIENT_CC_WEIR_TABLES_H_
#define CLIENT_CC_WEIR_TABLES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace weir::sdk {

// How a gradient moves its row; rows without one stay (docs/optimizers.md).
// Each kind reads its own members.
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
  bool per_row_step = false;          // kAdam: t is a row's own updates
  double learning_rate_power = -0.5;  // kFtrl, as all below
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
  // Of new rows: uniform in [-init_scale, init_scale), normal with that
  // standard deviation, or init_scale everywhere.
  enum class Init { kUniform, kNormal, kConstant };
  Init init = Init::kUniform;
  float init_scale = 0.05f;
  // Which ids get a row: at their so many-th touch (at most 255), or at each
  // touch with that probability; one of them. Others read their initial values,
  // and their gradients are dropped.
  uint32_t admission_count = 0;
  double admission_probability = 0.0;
  uint64_t admission_filter_bytes = 0;  // 0: 16 MiB a server
  // Which rows go: those not touched for so many pushes (sync: steps) or
  // seconds; one of them.
  uint32_t expiry_steps = 0;
  uint32_t expiry_seconds = 0;
  uint64_t memory_bytes = 0;    // of the table on one server; 0: no bound
  bool least_frequent = false;  // goes first when memory is used up; else the
                                // least recent
  // What travels in place of float32: "f32", "bf16", "f16", "int8".
  std::string lookup_encoding = "f32";
  std::string update_encoding = "f32";
};

// Ids in any order, any number of times, and the rows in their order.
struct RowsWanted {
  std::string table;
  std::span<const uint64_t> ids;
  std::span<float> rows;  // [ids, dim], row-major
};

// Gradients of rows, in any order. Those of one id are summed in float64, in
// their order, and rounded once: also over several lists of one table.
struct RowGradients {
  std::string table;
  std::span<const uint64_t> ids;
  std::span<const float> gradients;  // [ids, dim], row-major
};

// Replaces what a table's optimizer says, for one push.
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
