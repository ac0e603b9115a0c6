// Copies of a table's rows, in the form in which a checkpoint holds them.
#ifndef COMMON_JOB_ROW_RECORDS_H_
#define COMMON_JOB_ROW_RECORDS_H_

#include <algorithm>
#include <cstddef>
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

  // Leaves the rows i for which keep(i) holds, in their order. `keep` is called
  // once for each row, and may change that row before.
  template <class Keep>
  void KeepIf(size_t row_floats, const Keep& keep) {
    size_t to = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (!keep(i)) {
        continue;
      }
      // In place: `to` never runs ahead of i, so nothing unread is overwritten.
      ids[to] = ids[i];
      touched[to] = touched[i];
      updates[to] = updates[i];
      std::copy_n(floats.data() + i * row_floats, row_floats,
                  floats.data() + to * row_floats);
      ++to;
    }
    ids.resize(to);
    touched.resize(to);
    updates.resize(to);
    floats.resize(to * row_floats);
  }
};

}  // namespace weir

#endif  // COMMON_JOB_ROW_RECORDS_H_
