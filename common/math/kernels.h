// The loops over arrays of float32 that client, ps and worker share. The 16-bit
// encodings are in common/math/half.h.
//
// Terms
//   bytes   `const char*` that holds little-endian elements at any address:
//           the payload of a message, read where it lies.
//
// Invariants: those of common/math/simd.h; every function is elementwise, so a
//   cut changes no bit.
// Threads: safe. Functions that read or write values may race, on purpose
//   (WEIR_HOGWILD in common/math/simd.h).
// Cost: one pass; bench/store/store_kernels_bench.cc.
#ifndef COMMON_MATH_KERNELS_H_
#define COMMON_MATH_KERNELS_H_

#include <cstdint>

namespace weir {

// True if none of the `count` float32 is NaN or infinite.
bool AllFinite(const char* bytes, int64_t count);

// sum += weight * x.
void AddScaled(float* sum, const char* bytes, float weight, int64_t count);
// sum = weight * x.
void SetScaled(float* sum, const char* bytes, float weight, int64_t count);
// sum = sum / divisor.
void Divide(float* sum, float divisor, int64_t count);

}  // namespace weir

#endif  // COMMON_MATH_KERNELS_H_
