#include "server/ps/gradient_reader.h"

#include <algorithm>
#include <span>

#include "common/check.h"
#include "common/half.h"

namespace weir {

GradientReader::GradientReader(const Payload& payload, Encoding encoding)
    : payload_(payload),
      encoding_(encoding),
      width_(static_cast<size_t>(Width(encoding))) {
  WEIR_CHECK(width_ > 0);
}

int64_t GradientReader::Width(Encoding encoding) {
  switch (encoding) {
    case F32:
      return 4;
    case BF16:
    case F16:
      return 2;
    default:
      return 0;
  }
}

GradientReader::Run GradientReader::Next(int64_t count_max) {
  if (encoding_ != F32) {
    count_max = std::min(count_max, kScratchElements);
  }
  Advance(0);
  const std::span<const char> piece = payload_.pieces()[piece_];
  const char* data = piece.data() + offset_;
  int64_t count = static_cast<int64_t>((piece.size() - offset_) / width_);
  if (count == 0) {  // the element goes on in the next piece
    for (size_t i = 0; i < width_; ++i) {
      Advance(0);
      stitched_[i] = payload_.pieces()[piece_][offset_];
      ++offset_;
    }
    return {Decode(stitched_, 1), 1};
  }
  count = std::min(count, count_max);
  offset_ += static_cast<size_t>(count) * width_;
  return {Decode(data, count), count};
}

void GradientReader::Skip(int64_t count) {
  Advance(static_cast<size_t>(count) * width_);
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

const char* GradientReader::Decode(const char* bytes, int64_t count) {
  if (encoding_ == F32) {
    return bytes;
  }
  if (encoding_ == BF16) {
    Bf16ToFloats(bytes, static_cast<size_t>(count), scratch_);
  } else {
    F16ToFloats(bytes, static_cast<size_t>(count), scratch_);
  }
  return reinterpret_cast<const char*>(scratch_);
}

}  // namespace weir
