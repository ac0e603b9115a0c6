#include "server/ps/table/row_sums.h"

#include "common/math/kernels.h"

namespace weir {

void RowSums::Add(std::span<const uint64_t> ids, const char* gradients,
                  float weight) {
  const auto dim = static_cast<size_t>(dim_);
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto [place, is_new] =
        places_.try_emplace(ids[i], static_cast<uint32_t>(ids_.size()));
    const char* const from = gradients + i * dim * sizeof(float);
    // I1. The first gradient is set, not added to 0, which would turn -0 into
    // +0.
    if (is_new) {
      ids_.push_back(ids[i]);
      sums_.resize(sums_.size() + dim);
      SetScaled(sums_.data() + place->second * dim, from, weight, dim_);
    } else {
      AddScaled(sums_.data() + place->second * dim, from, weight, dim_);
    }
  }
}

void RowSums::DivideBy(float divisor) {
  Divide(sums_.data(), divisor, static_cast<int64_t>(sums_.size()));
}

void RowSums::Clear() {
  places_.clear();
  ids_.clear();
  sums_.clear();
}

}  // namespace weir
