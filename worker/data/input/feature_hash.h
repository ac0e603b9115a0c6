// The id of a categorical value: a hash of its feature and its text.
//
// Place: readers of text make ids with it; the ids name rows of tables, so
// checkpoints hold them. It may never change.
//
// Terms
//   Mix   "Mix13" of Stafford, "Better Bit Mixing", 2011, as in SplitMix64: a
//         bijection of 64 bits.
//   h     Mix(feature + 0x9e3779b97f4a7c15), then for each 8 bytes of the text,
//         as a little-endian word w whose missing bytes are 0: h = Mix(h ^ w);
//         at the end Mix(h ^ length).
//
// Invariants
//   I1. Two values of one feature that have the same length of at most 8 bytes
//       have different hashes. For others a collision is as likely as for
//       random 64-bit numbers: n^2 / 2^65 for n values.
#ifndef WORKER_DATA_INPUT_FEATURE_HASH_H_
#define WORKER_DATA_INPUT_FEATURE_HASH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace weir {

constexpr uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// `feature` is the number of the value's column, counted from 0.
constexpr uint64_t FeatureHash(uint64_t feature, absl::string_view text) {
  uint64_t hash = MixBits(feature + 0x9e3779b97f4a7c15u);
  for (size_t begin = 0; begin < text.size(); begin += 8) {
    const size_t bytes = std::min<size_t>(8, text.size() - begin);
    uint64_t word = 0;
    for (size_t i = 0; i < bytes; ++i) {
      word |= uint64_t{static_cast<unsigned char>(text[begin + i])} << (8 * i);
    }
    hash = MixBits(hash ^ word);
  }
  return MixBits(hash ^ text.size());
}

// Returns an id in [0, bucket_count), or the hash itself where that is 0.
constexpr uint64_t BucketOf(uint64_t hash, uint64_t bucket_count) {
  return bucket_count == 0 ? hash : hash % bucket_count;
}

}  // namespace weir

#endif  // WORKER_DATA_INPUT_FEATURE_HASH_H_
