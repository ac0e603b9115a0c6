#include "server/ps/table/rows_before.h"

#include <algorithm>
#include <cstring>

namespace weir {

void RowsBefore::Take(Table& table, std::span<const uint64_t> ids) {
  step_ = table.step();
  clock_ = table.clock();
  places_.clear();
  for (size_t i = 0; i < ids.size(); ++i) {
    places_[ids[i]] = static_cast<uint32_t>(i);
  }
  rows_.resize(ids.size() * row_floats_);
  states_.resize(ids.size());
  table.ReadWhole(ids, rows_.data(), states_.data());
}

const float* RowsBefore::Find(uint64_t id) const {
  const auto place = places_.find(id);
  if (place == places_.end()) {
    return nullptr;
  }
  return rows_.data() + place->second * row_floats_;
}

void RowsBefore::Overwrite(std::span<const uint64_t> ids, size_t dim,
                           float* out) const {
  for (size_t i = 0; i < ids.size(); ++i) {
    // A row that was not taken has not moved: `out` already has it.
    if (const float* const values = Find(ids[i])) {
      std::memcpy(out + i * dim, values, dim * sizeof(float));
    }
  }
}

void RowsBefore::PutBack(RowRecords* rows) const {
  rows->KeepIf(row_floats_, [&](size_t i) {
    const auto place = places_.find(rows->ids[i]);
    if (place == places_.end()) {
      return true;
    }
    const Table::RowState& state = states_[place->second];
    rows->touched[i] = state.touched;
    rows->updates[i] = state.updates;
    std::copy_n(rows_.data() + place->second * row_floats_, row_floats_,
                rows->floats.data() + i * row_floats_);
    // Else the step made this row: at the version before it did not exist.
    return state.exists;
  });
}

}  // namespace weir
