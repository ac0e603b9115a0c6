// Sums of gradients by row: what the contributions of a sync step give a table.
//
// Invariants
//   I1. A row's sum is taken in the order of the calls of Add; the bits do not
//       depend on what else is added.
// Threads: compatible.
#ifndef SERVER_PS_TABLE_ROW_SUMS_H_
#define SERVER_PS_TABLE_ROW_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace weir {

class RowSums {
 public:
  explicit RowSums(int dim) : dim_(dim) {}

  // Adds weight * gradient: dim little-endian floats for each id, at any
  // address. REQUIRES: no id twice in one call.
  void Add(std::span<const uint64_t> ids, const char* gradients, float weight);
  void DivideBy(float divisor);
  void Clear();

  // In the order of their first Add.
  std::span<const uint64_t> ids() const { return ids_; }
  // [ids, dim], row-major
  const float* sums() const { return sums_.data(); }

 private:
  const int dim_;
  absl::flat_hash_map<uint64_t, uint32_t> places_;
  std::vector<uint64_t> ids_;
  std::vector<float> sums_;
};

}  // namespace weir

#endif  // SERVER_PS_TABLE_ROW_SUMS_H_
