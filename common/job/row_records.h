// Copies of a table's rows, in the form in which a checkpoint holds them.
#ifndef COMMON_JOB_ROW_RECORDS_H_
#define COMMON_JOB_ROW_RECORDS_H_

#include <cstdint>
#include <vector>

namespace weir {

// Element i of each array belongs to row i.
struct RowRecords {
  std::vector<uint64_t> ids;
  std::vector<uint32_t> touched;  // the table's clock at the last touch
  std::vector<uint32_t> updates;
  std::vector<float> floats;  // [rows, row_floats], row-major
  bool operator==(const RowRecords&) const = default;
};

}  // namespace weir

#endif  // COMMON_JOB_ROW_RECORDS_H_
