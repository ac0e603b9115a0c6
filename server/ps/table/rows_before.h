// Rows of a table as they were before a sync step moved them.
//
// Place: TableGroup takes them as it publishes a version; lookups and
//   checkpoints of the version before read them.
// Threads: compatible.
#ifndef SERVER_PS_TABLE_ROWS_BEFORE_H_
#define SERVER_PS_TABLE_ROWS_BEFORE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/job/row_records.h"
#include "server/ps/table/table.h"

namespace weir {

class RowsBefore {
 public:
  explicit RowsBefore(int row_floats)
      : row_floats_(static_cast<size_t>(row_floats)) {}

  // Copies these rows of `table`, its step and its clock; forgets what was
  // here.
  void Take(Table& table, std::span<const uint64_t> ids);

  // The row's values then, or null when it was not taken.
  const float* Find(uint64_t id) const;
  // Replaces the values of the rows that were taken in `out` [ids, dim],
  // row-major.
  void Overwrite(std::span<const uint64_t> ids, size_t dim, float* out) const;
  // The table's step() then.
  uint64_t step() const { return step_; }
  // The table's clock() then.
  uint64_t clock() const { return clock_; }

  // Makes rows of Table::Export what they were then: the step's rows as taken,
  // without those that it made.
  void PutBack(RowRecords* rows) const;

 private:
  const size_t row_floats_;
  uint64_t step_ = 0;
  uint64_t clock_ = 0;
  absl::flat_hash_map<uint64_t, uint32_t> places_;
  std::vector<float> rows_;  // [ids, row_floats], row-major
  std::vector<Table::RowState> states_;
};

}  // namespace weir

#endif  // SERVER_PS_TABLE_ROWS_BEFORE_H_
