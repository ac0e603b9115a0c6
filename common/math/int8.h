// Converts float32 to and from signed bytes with one scale for each group of
// 256.
//
// Place: both ends of a chunk whose encoding is INT8. job_spec.proto has the
// bytes, which may be at any address.
//
// Rounding: the scale is the group's largest magnitude / 127; values are
// rounded to nearest, ties to even, so the error is at most half a scale. A
// group with NaN or infinity becomes NaN, one below 1e-30 becomes 0.
// Threads: safe. While the encoder runs, its `in` may change, on purpose
//   (WEIR_HOGWILD in common/math/simd.h).
#ifndef COMMON_MATH_INT8_H_
#define COMMON_MATH_INT8_H_

#include <cstddef>

namespace weir {

inline constexpr size_t kInt8Group = 256;

// Bytes of `count` values.
inline constexpr size_t Int8Bytes(size_t count) {
  return count + (count + kInt8Group - 1) / kInt8Group * sizeof(float);
}

// `count` elements; `out` and `in` do not overlap.
void FloatsToInt8(const float* in, size_t count, char* out);
void Int8ToFloats(const char* in, size_t count, float* out);

}  // namespace weir

#endif  // COMMON_MATH_INT8_H_
