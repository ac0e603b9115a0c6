#include "server/ps/table/rows_before.h"

#include <algorithm>

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
  return place == places_.end() ? nullptr
                                : rows_.data() + place->second * row_floats_;
}

void RowsBefore::PutBack(RowRecords* rows) const {
  size_t to = 0;
  for (size_t i = 0; i < rows->ids.size(); ++i) {
    const auto place = places_.find(rows->ids[i]);
    const bool taken = place != places_.end();
    if (taken && !states_[place->second].exists) {
      continue;
    }
    const float* const from = taken ? rows_.data() + place->second * row_floats_
                                    : rows->floats.data() + i * row_floats_;
    rows->ids[to] = rows->ids[i];
    rows->touched[to] =
        taken ? states_[place->second].touched : rows->touched[i];
    rows->updates[to] =
        taken ? states_[place->second].updates : rows->updates[i];
    std::copy_n(from, row_floats_, rows->floats.data() + to * row_floats_);
    ++to;
  }
  rows->ids.resize(to);
  rows->touched.resize(to);
  rows->updates.resize(to);
  rows->floats.resize(to * row_floats_);
}

}  // namespace weir
