#include "server/ps/block/block_buffer.h"

namespace weir {

BlockRef BlockRef::Make(Arena* arena, int64_t elements,
                        std::shared_ptr<const void> with) {
  auto rep = std::make_unique<Rep>();
  rep->arena = arena;
  rep->elements = elements;
  rep->with = std::move(with);
  // I1: every arena aligns to 64 bytes, and `elements` never changes after
  // this, so Release gives back what was taken.
  rep->data = static_cast<float*>(
      arena->Allocate(static_cast<size_t>(elements) * sizeof(float)));
  BlockRef ref;
  ref.rep_ = rep.release();
  return ref;
}

void BlockRef::Release() {
  // I2. Release order: our reads are over before another holder sees that it is
  // the only one (unique) and writes. Acquire order: the last one frees after
  // all others are done.
  if (rep_ != nullptr &&
      rep_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    rep_->arena->Free(rep_->data,
                      static_cast<size_t>(rep_->elements) * sizeof(float));
    delete rep_;
  }
  rep_ = nullptr;
}

}  // namespace weir
