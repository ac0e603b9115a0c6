#include "worker/compute/cuda/bf16_copies.h"

#include <algorithm>

#include "common/base/status.h"

namespace weir::cuda {

absl::StatusOr<const Bf16*> Bf16Copies::Of(cudaStream_t stream, const float* x,
                                           int64_t count) {
  const auto found = std::find_if(copies_.begin(), copies_.end(),
                                  [&](const Copy& c) { return c.x == x; });
  Copy& copy =
      found != copies_.end() ? *found : copies_.emplace_back(Copy{.x = x});
  if (count > copy.count) {
    copy.count = count;
    copy.valid = 0;
  }
  WEIR_ASSIGN_OR_RETURN(
      void* const memory,
      copy.memory->Reserve(copy.count * static_cast<int64_t>(sizeof(Bf16))));
  if (copy.valid < count) {
    ToBf16(stream, count, x, static_cast<Bf16*>(memory));
    copy.valid = count;
  }
  return static_cast<const Bf16*>(memory);
}

void Bf16Copies::OnWrite(const float* x, int64_t count) {
  for (Copy& copy : copies_) {
    if (copy.Overlaps(x, count)) {
      copy.valid = 0;
    }
  }
}

void Bf16Copies::OnWriteAll() {
  for (Copy& copy : copies_) {
    copy.valid = 0;
  }
}

void Bf16Copies::Forget(const float* x, int64_t count) {
  std::erase_if(copies_,
                [&](const Copy& copy) { return copy.Overlaps(x, count); });
}

int64_t Bf16Copies::bytes() const {
  int64_t sum = 0;
  for (const Copy& copy : copies_) {
    sum += copy.memory->bytes();
  }
  return sum;
}

}  // namespace weir::cuda
