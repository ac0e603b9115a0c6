#include "server/ps/block/block_buffer.h"

namespace weir {

BlockRef BlockRef::Make(Arena* arena, int64_t elements) {
  BlockRef ref;
  ref.rep_ = new Rep;
  ref.rep_->arena = arena;
  ref.rep_->elements = elements;
  ref.rep_->data = static_cast<float*>(
      arena->Allocate(static_cast<size_t>(elements) * sizeof(float)));
  return ref;
}

void BlockRef::Release() {
  if (rep_ != nullptr &&
      rep_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    rep_->arena->Free(rep_->data,
                      static_cast<size_t>(rep_->elements) * sizeof(float));
    delete rep_;
  }
  rep_ = nullptr;
}

}  // namespace weir
