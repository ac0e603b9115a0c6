#include "common/math/half.h"

#include <bit>

#include "common/math/simd.h"

namespace weir {
namespace {

typedef uint16_t UnalignedU16 __attribute__((aligned(1), may_alias));

WEIR_KERNEL uint32_t ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  // Adds half an ulp, less the smallest bit, and that bit again if the result
  // would be odd: ties go to even.
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  // The quiet bit: a payload of low bits alone would round to infinity.
  const uint32_t nan = (bits >> 16) | 0x40u;
  // Magnitudes order as their bits do. Signed, since SSE2 has no unsigned
  // comparison; selections and no branches, so that the loop is vectorised.
  const int32_t magnitude = static_cast<int32_t>(bits & 0x7fffffffu);
  return magnitude > 0x7f800000 ? nan : rounded;
}

WEIR_KERNEL uint32_t ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const int32_t magnitude = static_cast<int32_t>(bits & 0x7fffffffu);
  const uint32_t u = static_cast<uint32_t>(magnitude);
  // 0.5 has the ulp of F16's subnormals, so the addition rounds to them.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(u) + 0.5f) - 0x3f000000u;
  // Exponent bias 127 -> 15; a carry out of the mantissa is the next exponent,
  // and out of the largest one infinity.
  const uint32_t normal = (u - 0x38000000u + 0xfffu + ((u >> 13) & 1u)) >> 13;
  // The upper bits of the payload stay, and the quiet bit is set.
  const uint32_t nan = 0x7e00u | ((u >> 13) & 0x3ffu);
  uint32_t out = magnitude < 0x38800000 ? subnormal : normal;  // 2^-14
  out = magnitude >= 0x47800000 ? 0x7c00u : out;               // 65536
  out = magnitude > 0x7f800000 ? nan : out;
  return out | sign;
}

WEIR_KERNEL float FromF16(uint32_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t shifted = (half & 0x7fffu) << 13;
  const uint32_t exponent = shifted & 0x0f800000u;
  const uint32_t normal = shifted + 0x38000000u;
  const uint32_t special = shifted + 0x70000000u;  // infinity and NaN
  // 2^-14 (1 + m) - 2^-14, exact.
  const uint32_t subnormal = std::bit_cast<uint32_t>(
      std::bit_cast<float>(shifted + 0x38800000u) - 0x1p-14f);
  uint32_t out = exponent == 0 ? subnormal : normal;
  out = exponent == 0x0f800000u ? special : out;
  return std::bit_cast<float>(out | sign);
}

WEIR_KERNEL float FromBf16(uint32_t half) {
  return std::bit_cast<float>(half << 16);
}

template <bool bf16>
struct EncodeBody {
  static WEIR_KERNEL void Run(const float* __restrict in, char* __restrict out,
                              size_t count) {
    auto* __restrict halves = reinterpret_cast<UnalignedU16*>(out);
    for (size_t i = 0; i < count; ++i) {
      halves[i] = static_cast<uint16_t>(bf16 ? ToBf16(in[i]) : ToF16(in[i]));
    }
  }
};

template <bool bf16>
struct DecodeBody {
  static WEIR_KERNEL void Run(const char* __restrict in, float* __restrict out,
                              size_t count) {
    const auto* __restrict halves = reinterpret_cast<const UnalignedU16*>(in);
    for (size_t i = 0; i < count; ++i) {
      out[i] = bf16 ? FromBf16(halves[i]) : FromF16(halves[i]);
    }
  }
};

}  // namespace

void FloatsToBf16(const float* in, size_t count, char* out) {
  SimdDispatch<EncodeBody<true>>(in, out, count);
}

void Bf16ToFloats(const char* in, size_t count, float* out) {
  SimdDispatch<DecodeBody<true>>(in, out, count);
}

void FloatsToF16(const float* in, size_t count, char* out) {
  SimdDispatch<EncodeBody<false>>(in, out, count);
}

void F16ToFloats(const char* in, size_t count, float* out) {
  SimdDispatch<DecodeBody<false>>(in, out, count);
}

}  // namespace weir
