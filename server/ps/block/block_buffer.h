// Reference-counted float buffers from an arena.
//
// Place: every buffer of values, optimizer state and sums in the store is one.
// A pull answers with a reference, which the transport drops when the bytes
// have left; a snapshot holds references while it writes. Whoever wants to
// change a buffer that others hold makes a new one (copy on write).
//
// Invariants
//   I1. A buffer is 64-byte aligned and its size never changes.
//   I2. Only the holder of the sole reference, or the block's owner under the
//       block's lock for a buffer nobody else may read, writes to it.
// Threads: references may be copied and dropped on any thread.
#ifndef SERVER_PS_BLOCK_BLOCK_BUFFER_H_
#define SERVER_PS_BLOCK_BLOCK_BUFFER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/ps/memory/arena.h"

namespace weir {

class BlockRef {
 public:
  BlockRef() = default;
  // A new buffer of `elements` floats, contents undefined. It keeps `with`
  // until its memory has gone back.
  static BlockRef Make(Arena* arena, int64_t elements,
                       std::shared_ptr<const void> with = nullptr);

  BlockRef(const BlockRef& other) : rep_(other.rep_) {
    if (rep_ != nullptr) {
      rep_->references.fetch_add(1, std::memory_order_relaxed);
    }
  }
  BlockRef(BlockRef&& other) noexcept
      : rep_(std::exchange(other.rep_, nullptr)) {}
  BlockRef& operator=(BlockRef other) noexcept {
    std::swap(rep_, other.rep_);
    return *this;
  }
  ~BlockRef() { Release(); }

  explicit operator bool() const { return rep_ != nullptr; }
  float* data() const { return rep_->data; }
  int64_t elements() const { return rep_->elements; }
  size_t bytes() const {
    return static_cast<size_t>(rep_->elements) * sizeof(float);
  }
  // True when no other reference exists; only then may the holder write.
  bool unique() const {
    return rep_->references.load(std::memory_order_acquire) == 1;
  }

 private:
  struct Rep {
    std::atomic<int64_t> references{1};
    Arena* arena;
    float* data;
    int64_t elements;
    std::shared_ptr<const void> with;
  };
  void Release();

  Rep* rep_ = nullptr;
};

}  // namespace weir

#endif  // SERVER_PS_BLOCK_BLOCK_BUFFER_H_
