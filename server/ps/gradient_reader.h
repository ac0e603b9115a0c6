// Reads a chunk's payload as float32, where it lies.
//
// Place: between common/payload.h and the kernels. F32 is never copied, but for
// the element that a piece's end cuts; other encodings pass through a small
// scratch.
//
// Threads: compatible. Borrows the payload.
#ifndef SERVER_PS_GRADIENT_READER_H_
#define SERVER_PS_GRADIENT_READER_H_

#include <cstddef>
#include <cstdint>

#include "common/payload.h"
#include "proto/ps.pb.h"

namespace weir {

class GradientReader {
 public:
  // Little-endian float32 at any address; valid until the next call.
  struct Run {
    const char* data = nullptr;
    int64_t count = 0;
  };

  GradientReader(const Payload& payload, Encoding encoding);

  // Bytes of one element; 0 for an unknown encoding.
  static int64_t Width(Encoding encoding);

  // The next elements: at least one, at most `count_max`.
  // REQUIRES: an element remains; count_max > 0.
  Run Next(int64_t count_max);

  // Passes over elements. REQUIRES: they remain.
  void Skip(int64_t count);

 private:
  static constexpr int64_t kScratchElements = 4096;  // 16 KiB: stays in L1

  void Advance(size_t bytes);
  const char* Decode(const char* bytes, int64_t count);

  const Payload& payload_;
  const Encoding encoding_;
  const size_t width_;
  size_t piece_ = 0;
  size_t offset_ = 0;  // in the piece
  char stitched_[sizeof(float)];
  alignas(64) float scratch_[kScratchElements];
};

}  // namespace weir

#endif  // SERVER_PS_GRADIENT_READER_H_
