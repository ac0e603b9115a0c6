#include "server/ps/block/gradient_reader.h"

#include <algorithm>
#include <span>

namespace weir {

GradientReader::Run GradientReader::Next(int64_t count_max) {
  Advance(0);
  const std::span<const char> piece = payload_.pieces()[piece_];
  const char* data = piece.data() + offset_;
  int64_t count =
      static_cast<int64_t>((piece.size() - offset_) / sizeof(float));
  // The element goes on in the next piece, or over several: gRPC cuts its
  // slices without regard to floats. Only such an element is copied.
  if (count == 0) {
    for (size_t i = 0; i < sizeof(float); ++i) {
      Advance(0);
      stitched_[i] = payload_.pieces()[piece_][offset_];
      ++offset_;
    }
    return {stitched_, 1};
  }
  count = std::min(count, count_max);
  offset_ += static_cast<size_t>(count) * sizeof(float);
  return {data, count};
}

void GradientReader::Skip(int64_t count) {
  Advance(static_cast<size_t>(count) * sizeof(float));
}

// Also steps over finished and empty pieces.
void GradientReader::Advance(size_t bytes) {
  offset_ += bytes;
  while (piece_ < payload_.pieces().size() &&
         offset_ >= payload_.pieces()[piece_].size()) {
    offset_ -= payload_.pieces()[piece_].size();
    ++piece_;
  }
}

}  // namespace weir
