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
  size_t to = 0;
  for (size_t i = 0; i < rows->ids.size(); ++i) {
    const auto place = places_.find(rows->ids[i]);
    const bool taken = place != places_.end();
    // The step made this row: at the version before it did not exist.
    if (taken && !states_[place->second].exists) {
      continue;
    }
    const float* from = rows->floats.data() + i * row_floats_;
    rows->ids[to] = rows->ids[i];
    rows->touched[to] = rows->touched[i];
    rows->updates[to] = rows->updates[i];
    if (taken) {
      from = rows_.data() + place->second * row_floats_;
      rows->touched[to] = states_[place->second].touched;
      rows->updates[to] = states_[place->second].updates;
    }
    // In place: `to` never runs ahead of i, so nothing unread is overwritten.
    std::copy_n(from, row_floats_, rows->floats.data() + to * row_floats_);
    ++to;
  }
  rows->ids.resize(to);
  rows->touched.resize(to);
  rows->updates.resize(to);
  rows->floats.resize(to * row_floats_);
}

}  // namespace weir
