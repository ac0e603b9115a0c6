// Reads the float32 of a chunk's payload where they lie.
//
// Place: between common/io/payload.h and the kernels. Nothing is copied but the
// element that a piece's end cuts.
//
// Threads: compatible. Borrows the payload.
#ifndef SERVER_PS_BLOCK_GRADIENT_READER_H_
#define SERVER_PS_BLOCK_GRADIENT_READER_H_

#include <cstddef>
#include <cstdint>

#include "common/io/payload.h"

namespace weir {

class GradientReader {
 public:
  // Little-endian float32 at any address; valid until the next call.
  struct Run {
    const char* data = nullptr;
    int64_t count = 0;
  };

  explicit GradientReader(const Payload& payload) : payload_(payload) {}

  // The next elements: at least one, at most `count_max`.
  // REQUIRES: an element remains; count_max > 0.
  Run Next(int64_t count_max);

  // Passes over elements. REQUIRES: they remain.
  void Skip(int64_t count);

 private:
  void Advance(size_t bytes);

  const Payload& payload_;
  size_t piece_ = 0;
  size_t offset_ = 0;  // in the piece
  char stitched_[sizeof(float)];
};

}  // namespace weir

#endif  // SERVER_PS_BLOCK_GRADIENT_READER_H_
