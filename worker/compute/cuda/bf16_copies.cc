#include "worker/compute/cuda/bf16_copies.h"

#include <algorithm>

#include "common/base/status.h"

namespace weir::cuda {

absl::StatusOr<const Bf16*> Bf16Copies::Of(cudaStream_t stream, const float* x,
                                           int64_t count) {
  auto copy = std::find_if(copies_.begin(), copies_.end(),
                           [&](const Copy& c) { return c.x == x; });
  if (copy == copies_.end()) {
    copy = copies_.insert(copies_.end(), Copy{.x = x});
  }
  if (count > copy->count) {
    // Reserve() may give other memory, with nothing of the copy in it.
    copy->count = count;
    copy->valid = 0;
  }
  WEIR_ASSIGN_OR_RETURN(
      void* const memory,
      copy->memory->Reserve(copy->count * static_cast<int64_t>(sizeof(Bf16))));
  // I1: what is not fresh is rounded behind the writes that made it stale,
  // since those are on the same stream or joined to it.
  if (copy->valid < count) {
    ToBf16(stream, count, x, static_cast<Bf16*>(memory));
    copy->valid = count;
  }
  return static_cast<const Bf16*>(memory);
}

void Bf16Copies::OnWrite(const float* x, int64_t count) {
  // I1. A tensor may be a part of another one, so its address does not suffice.
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
  // Frees the copies, which waits for the products that still read them.
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
