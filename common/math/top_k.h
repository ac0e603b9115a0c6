// Encodes the values of largest magnitude with their places, and decodes them.
//
// Place: both ends of a chunk whose encoding is TOP_K; job_spec.proto has the
// bytes.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT  the bytes are cut short, too long, or name a place
//                           beyond the end.
#ifndef COMMON_MATH_TOP_K_H_
#define COMMON_MATH_TOP_K_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace weir {

// The places of the min(k, count) values of largest magnitude, ascending. Of
// equal values the first ones are taken. NaN counts as the largest.
// Cost: one pass and a little more.
std::vector<uint32_t> LargestPlaces(const float* values, size_t count,
                                    size_t k);

// How many bytes EncodeTopK writes at most, for k places below 2^28.
inline constexpr size_t TopKBytesMax(size_t k) { return 4 + 8 * k; }

// Writes the values at `places` (ascending); returns the bytes written.
size_t EncodeTopK(const float* values, std::span<const uint32_t> places,
                  char* out);

// Fills `out` with `count` values; those that were not sent are 0.
absl::Status DecodeTopK(std::span<const char> bytes, float* out, size_t count);

}  // namespace weir

#endif  // COMMON_MATH_TOP_K_H_
