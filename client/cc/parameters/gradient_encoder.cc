#include "client/cc/parameters/gradient_encoder.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/math/kernels.h"
#include "common/math/top_k.h"
#include "proto/wire/value_encoding.h"

namespace weir {
namespace {

// Elements of one pass. A multiple of INT8's group, so that windows encode like
// the whole block, and small enough that the window stays in the L1 cache.
constexpr int64_t kWindow = 2048;
// The encoded blocks begin on cache lines of their own, since two threads may
// write two of them at once.
constexpr size_t kAlign = 64;
constexpr float kLargest = 1e38f;  // every encoding but F16 holds it
constexpr float kLargestF16 = 65504.0f;

size_t Aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

absl::StatusOr<std::unique_ptr<GradientEncoder>> GradientEncoder::Create(
    const Compression& compression, const Layout* layout,
    const float* gradients, Transport* transport) {
  std::unique_ptr<GradientEncoder> encoder(
      new GradientEncoder(compression, gradients));
  size_t bytes = 0;
  for (int s = 0; s < layout->shard_count(); ++s) {
    std::vector<Block>& blocks = encoder->shards_.emplace_back();
    for (int index = 0; index < layout->block_count(s); ++index) {
      Block& block = blocks.emplace_back();
      block.range = layout->block({s, index});
      for (const Segment& segment : layout->segments({s, index})) {
        block.segments.push_back(segment);
        block.has_buffers =
            block.has_buffers ||
            layout->variables()[segment.variable].kind == VariableKind::kBuffer;
      }
      if (!block.has_buffers) {  // I4: it is never encoded
        bytes += Aligned(encoder->BytesMax(block.range.count));
      }
    }
  }
  // From the transport, which then sends the bytes without a copy.
  encoder->encoded_ = transport->NewBuffer(bytes / sizeof(float) + 1);
  if (encoder->encoded_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", bytes, " bytes of encoded gradients"));
  }
  encoder->residuals_.resize(static_cast<size_t>(layout->flat_elements()));
  char* out = reinterpret_cast<char*>(encoder->encoded_.get());
  for (std::vector<Block>& blocks : encoder->shards_) {
    for (Block& block : blocks) {
      block.out = out;
      if (!block.has_buffers) {
        out += Aligned(encoder->BytesMax(block.range.count));
      }
    }
  }
  return encoder;
}

size_t GradientEncoder::BytesMax(int64_t elements) const {
  if (encoding_ == TOP_K) {
    return TopKBytesMax(PlacesIn(elements));
  }
  return EncodedBytes(encoding_, static_cast<size_t>(elements));
}

// Rounded up, so that a small block sends at least one element.
size_t GradientEncoder::PlacesIn(int64_t elements) const {
  return static_cast<size_t>(
      std::ceil(top_k_fraction_ * static_cast<double>(elements)));
}

// The elements that `push` moves. I3: those of variables that it leaves out are
// not among them, so neither gradient nor residual of theirs is touched.
std::vector<GradientEncoder::Range> GradientEncoder::Moved(
    const Block& block, const Push& push) const {
  std::vector<Range> moved;
  for (const Segment& segment : block.segments) {
    if (std::find(push.left_out().begin(), push.left_out().end(),
                  static_cast<uint32_t>(segment.variable)) !=
        push.left_out().end()) {
      continue;
    }
    moved.push_back(
        {segment.block_offset, segment.block_offset + segment.count});
  }
  return moved;
}

GradientEncoder::Encoded GradientEncoder::Encode(BlockId id, const Push& push) {
  Block& block = shards_[id.shard][id.index];
  const float* const gradient = gradients_ + block.range.begin;
  // I1: encoding has changed the residual. A repeat after a broken connection
  // must bring the bytes that this change belongs to.
  if (block.sequence != push.sequence()) {
    block.sequence = push.sequence();
    block.bytes = 0;
    const std::vector<Range> moved = Moved(block, push);
    const bool finite =
        std::all_of(moved.begin(), moved.end(), [gradient](const Range& range) {
          return AllFinite(
              reinterpret_cast<const char*>(gradient + range.begin),
              range.end - range.begin);
        });
    if (finite && !block.has_buffers) {  // I2, I4
      if (encoding_ == TOP_K) {
        block.bytes = EncodeLargest(block, moved);
      } else {
        block.bytes = EncodeFixedSize(block, moved);
      }
    }
  }
  if (block.bytes > 0) {
    return {encoding_, {block.out, block.bytes}};
  }
  return {F32,
          {reinterpret_cast<const char*>(gradient),
           static_cast<size_t>(block.range.count) * sizeof(float)}};
}

size_t GradientEncoder::EncodeFixedSize(const Block& block,
                                        const std::vector<Range>& moved) {
  const float* const gradient = gradients_ + block.range.begin;
  float* const residual = residuals_.data() + block.range.begin;
  const float largest = encoding_ == F16 ? kLargestF16 : kLargest;
  // Window by window: residual += gradient, send, residual -= what was sent.
  float sent[kWindow];
  float decoded[kWindow];
  char* out = block.out;
  for (int64_t begin = 0; begin < block.range.count; begin += kWindow) {
    const int64_t count = std::min(kWindow, block.range.count - begin);
    std::fill_n(sent, count, 0.0f);
    for (const Range& range : moved) {
      const int64_t end = std::min(range.end, begin + count);
      for (int64_t i = std::max(range.begin, begin); i < end; ++i) {
        // I2: two finite numbers may sum to infinity. What the encoding cannot
        // hold stays in the residual for the contributions to come.
        residual[i] =
            std::clamp(residual[i] + gradient[i], -kLargest, kLargest);
        sent[i - begin] = std::clamp(residual[i], -largest, largest);
      }
    }
    const auto elements = static_cast<size_t>(count);
    const size_t bytes = EncodedBytes(encoding_, elements);
    EncodeFloats(sent, elements, encoding_, out);
    // The ps moves its values by what it decodes, so that is what comes off.
    WEIR_CHECK(DecodeFloats(Payload::Borrowed({out, bytes}), encoding_,
                            elements, decoded)
                   .ok());
    out += bytes;
    for (const Range& range : moved) {
      const int64_t end = std::min(range.end, begin + count);
      for (int64_t i = std::max(range.begin, begin); i < end; ++i) {
        residual[i] -= decoded[i - begin];
      }
    }
  }
  return static_cast<size_t>(out - block.out);
}

size_t GradientEncoder::EncodeLargest(const Block& block,
                                      const std::vector<Range>& moved) {
  const float* const gradient = gradients_ + block.range.begin;
  float* const residual = residuals_.data() + block.range.begin;
  // Elements that are not moved stay 0 here: they are never the largest, unless
  // fewer than PlacesIn are left.
  std::vector<float> sent(static_cast<size_t>(block.range.count));
  for (const Range& range : moved) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      residual[i] = std::clamp(residual[i] + gradient[i], -kLargest, kLargest);
      sent[i] = residual[i];
    }
  }
  const std::vector<uint32_t> places =
      LargestPlaces(sent.data(), sent.size(), PlacesIn(block.range.count));
  // TOP_K sends float32, so nothing remains of an element that was sent. A
  // place with 0 may be of a variable that is left out: its residual stays
  // (I3).
  for (const uint32_t place : places) {
    if (sent[place] != 0.0f) {
      residual[place] = 0.0f;
    }
  }
  return EncodeTopK(sent.data(), places, block.out);
}

}  // namespace weir
