#include "common/half.h"

#include <bit>
#include <cstring>

namespace weir {
namespace {

uint16_t Load16(const char* in) {
  uint16_t bits;
  std::memcpy(&bits, in, sizeof(bits));
  return bits;
}

inline uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>(nan ? (bits >> 16) | 0x40 : rounded);
}

inline uint16_t ToF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {  // NaN
    return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  }
  if (magnitude >= 0x477ff000) {  // 65520: rounds to infinity
    return static_cast<uint16_t>(sign | 0x7c00);
  }
  if (magnitude < 0x38800000) {  // below 2^-14: subnormal or zero
    // Adding 0.5 leaves the value in units of 2^-24 in the low bits, rounded.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(
        sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

inline float FromF16(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = (half >> 10) & 0x1f;
  const uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  const uint32_t shifted = exponent == 0x1f ? 0xff : exponent + 112;
  return std::bit_cast<float>(sign | (shifted << 23) | (fraction << 13));
}

}  // namespace

uint16_t FloatToBf16(float value) { return ToBf16(value); }

float Bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

uint16_t FloatToF16(float value) { return ToF16(value); }

float F16ToFloat(uint16_t bits) { return FromF16(bits); }

void FloatsToBf16(const float* in, size_t count, char* out) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t bits = ToBf16(in[i]);
    std::memcpy(out + 2 * i, &bits, sizeof(bits));
  }
}

void Bf16ToFloats(const char* in, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = Bf16ToFloat(Load16(in + 2 * i));
  }
}

void FloatsToF16(const float* in, size_t count, char* out) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t bits = ToF16(in[i]);
    std::memcpy(out + 2 * i, &bits, sizeof(bits));
  }
}

void F16ToFloats(const char* in, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = FromF16(Load16(in + 2 * i));
  }
}

}  // namespace weir
