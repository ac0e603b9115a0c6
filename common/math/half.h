// Converts float32 to and from the 16-bit encodings of the wire.
//
// Place: both ends of a chunk whose encoding is not F32. The 16-bit side is
// little-endian bytes at any address.
//
// Rounding: to nearest, ties to even. NaN stays NaN and infinity stays
// infinity. A value that is too large for F16 becomes infinity, one that is too
// small a subnormal or zero.
// Threads: safe. While an encoder runs, its `in` may change, on purpose
//   (WEIR_HOGWILD in common/math/simd.h).
#ifndef COMMON_MATH_HALF_H_
#define COMMON_MATH_HALF_H_

#include <cstddef>
#include <cstdint>

namespace weir {

// `count` elements; `out` and `in` do not overlap.
void FloatsToBf16(const float* in, size_t count, char* out);
void Bf16ToFloats(const char* in, size_t count, float* out);
void FloatsToF16(const float* in, size_t count, char* out);
void F16ToFloats(const char* in, size_t count, float* out);

}  // namespace weir

#endif  // COMMON_MATH_HALF_H_
