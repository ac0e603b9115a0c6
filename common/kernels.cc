#include "common/kernels.h"

#include <bit>

#include "common/simd.h"

namespace weir {
namespace {

static_assert(std::endian::native == std::endian::little,
              "payloads are little-endian and used in place");

typedef uint32_t UnalignedU32 __attribute__((aligned(1), may_alias));
typedef uint16_t UnalignedU16 __attribute__((aligned(1), may_alias));

struct AllFiniteBody {
  static WEIR_KERNEL bool Run(const UnalignedU32* x, int64_t count) {
    uint32_t bad = 0;
    for (int64_t i = 0; i < count; ++i) {
      // Signed: SSE2 has no unsigned comparison.
      const int32_t magnitude = static_cast<int32_t>(x[i] & 0x7fffffffu);
      bad |= magnitude > 0x7f7fffff ? 1u : 0u;
    }
    return bad == 0;
  }
};

struct AddScaledBody {
  static WEIR_KERNEL void Run(float* __restrict sum,
                              const UnalignedFloat* __restrict x, float weight,
                              int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      sum[i] = sum[i] + weight * x[i];
    }
  }
};

struct SetScaledBody {
  static WEIR_KERNEL void Run(float* __restrict sum,
                              const UnalignedFloat* __restrict x, float weight,
                              int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      sum[i] = weight * x[i];
    }
  }
};

struct DivideBody {
  static WEIR_KERNEL void Run(float* sum, float divisor, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      sum[i] = sum[i] / divisor;
    }
  }
};

struct CopyValuesBody {
  static WEIR_KERNEL void Run(float* values, const char* bytes, int64_t count) {
    // Inlined to vector moves: a call of memcpy would be checked for races.
    typedef float Four __attribute__((vector_size(16), aligned(1), may_alias));
    float* end = values + count;
    for (; values + 4 <= end; values += 4, bytes += 16) {
      *reinterpret_cast<Four*>(values) = *reinterpret_cast<const Four*>(bytes);
    }
    for (; values < end; ++values, bytes += 4) {
      *values = *reinterpret_cast<const UnalignedFloat*>(bytes);
    }
  }
};

struct SumOfSquaresBody {
  static WEIR_KERNEL double Run(const UnalignedFloat* x, int64_t count) {
    constexpr int kLanes = 16;
    double lane[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (int k = 0; k < kLanes; ++k) {
        const double value = static_cast<double>(x[i + k]);
        lane[k] = lane[k] + value * value;
      }
    }
    for (int k = 0; i < count; ++i, ++k) {
      const double value = static_cast<double>(x[i]);
      lane[k] = lane[k] + value * value;
    }
    double sum = 0;
    for (int k = 0; k < kLanes; ++k) {
      sum = sum + lane[k];
    }
    return sum;
  }
};

WEIR_KERNEL uint32_t Bf16Bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  // The quiet bit: a payload of low bits alone would round to infinity.
  const uint32_t nan = (bits >> 16) | 0x40u;
  const int32_t magnitude = static_cast<int32_t>(bits & 0x7fffffffu);
  return magnitude > 0x7f800000 ? nan : rounded;
}

WEIR_KERNEL uint32_t F16Bits(float value) {
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
  const uint32_t nan = 0x7e00u | ((u >> 13) & 0x3ffu);
  uint32_t out = magnitude < 0x38800000 ? subnormal : normal;  // 2^-14
  out = magnitude >= 0x47800000 ? 0x7c00u : out;               // 65536
  out = magnitude > 0x7f800000 ? nan : out;
  return out | sign;
}

WEIR_KERNEL float F16Value(uint32_t half) {
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

struct EncodeBf16Body {
  static WEIR_KERNEL void Run(const float* __restrict values,
                              UnalignedU16* __restrict out, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = static_cast<uint16_t>(Bf16Bits(values[i]));
    }
  }
};

struct EncodeF16Body {
  static WEIR_KERNEL void Run(const float* __restrict values,
                              UnalignedU16* __restrict out, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = static_cast<uint16_t>(F16Bits(values[i]));
    }
  }
};

struct DecodeBf16Body {
  static WEIR_KERNEL void Run(const UnalignedU16* __restrict in,
                              float* __restrict values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      values[i] = std::bit_cast<float>(uint32_t{in[i]} << 16);
    }
  }
};

struct DecodeF16Body {
  static WEIR_KERNEL void Run(const UnalignedU16* __restrict in,
                              float* __restrict values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      values[i] = F16Value(in[i]);
    }
  }
};

const UnalignedFloat* Floats(const char* bytes) {
  return reinterpret_cast<const UnalignedFloat*>(bytes);
}
const UnalignedU16* Halves(const char* bytes) {
  return reinterpret_cast<const UnalignedU16*>(bytes);
}
UnalignedU16* Halves(char* bytes) {
  return reinterpret_cast<UnalignedU16*>(bytes);
}

}  // namespace

bool AllFinite(const char* bytes, int64_t count) {
  return SimdDispatch<AllFiniteBody>(
      reinterpret_cast<const UnalignedU32*>(bytes), count);
}

void AddScaled(float* sum, const char* bytes, float weight, int64_t count) {
  SimdDispatch<AddScaledBody>(sum, Floats(bytes), weight, count);
}

void SetScaled(float* sum, const char* bytes, float weight, int64_t count) {
  SimdDispatch<SetScaledBody>(sum, Floats(bytes), weight, count);
}

void Divide(float* sum, float divisor, int64_t count) {
  SimdDispatch<DivideBody>(sum, divisor, count);
}

void CopyValues(float* values, const char* bytes, int64_t count) {
  SimdDispatch<CopyValuesBody>(values, bytes, count);
}

double SumOfSquares(const char* bytes, int64_t count) {
  return SimdDispatch<SumOfSquaresBody>(Floats(bytes), count);
}

void EncodeBf16(const float* values, char* bytes, int64_t count) {
  SimdDispatch<EncodeBf16Body>(values, Halves(bytes), count);
}

void EncodeF16(const float* values, char* bytes, int64_t count) {
  SimdDispatch<EncodeF16Body>(values, Halves(bytes), count);
}

void DecodeBf16(const char* bytes, float* values, int64_t count) {
  SimdDispatch<DecodeBf16Body>(Halves(bytes), values, count);
}

void DecodeF16(const char* bytes, float* values, int64_t count) {
  SimdDispatch<DecodeF16Body>(Halves(bytes), values, count);
}

}  // namespace weir
