#include "common/math/kernels.h"

#include <bit>

#include "common/math/simd.h"

namespace weir {
namespace {

static_assert(std::endian::native == std::endian::little,
              "payloads are little-endian and used in place");

typedef uint32_t UnalignedU32 __attribute__((aligned(1), may_alias));

// Two halves at once, fetched a page ahead: one stream alone waits for memory
// at every page, where the processor's prefetcher starts anew.
struct AllFiniteBody {
  static WEIR_KERNEL bool Run(const char* bytes, int64_t count) {
    constexpr int64_t kStride = 32;  // elements: two cache lines
    const auto* x = reinterpret_cast<const UnalignedU32*>(bytes);
    const int64_t half = count / 2 / kStride * kStride;
    uint32_t bad = 0;
    for (int64_t i = 0; i < half; i += kStride) {
      FetchAhead(x + i);
      FetchAhead(x + half + i);
      for (int64_t k = i; k < i + kStride; ++k) {
        bad |= Bad(x[k]) | Bad(x[half + k]);
      }
    }
    for (int64_t i = 2 * half; i < count; ++i) {
      bad |= Bad(x[i]);
    }
    return bad == 0;
  }

  static WEIR_KERNEL uint32_t Bad(uint32_t bits) {
    // Signed, because SSE2 has no unsigned comparison.
    const int32_t magnitude = static_cast<int32_t>(bits & 0x7fffffffu);
    return magnitude > 0x7f7fffff ? 1u : 0u;
  }

  static WEIR_KERNEL void FetchAhead(const UnalignedU32* at) {
    constexpr int64_t kPage = 1024;  // elements
    __builtin_prefetch(at + kPage);
    __builtin_prefetch(at + kPage + 16);
  }
};

// Adds to what the sum holds, or begins it.
template <bool add>
struct ScaledBody {
  static WEIR_KERNEL void Run(float* __restrict sum,
                              const char* __restrict bytes, float weight,
                              int64_t count) {
    const auto* __restrict x = reinterpret_cast<const UnalignedFloat*>(bytes);
    for (int64_t i = 0; i < count; ++i) {
      const float scaled = weight * x[i];
      sum[i] = add ? sum[i] + scaled : scaled;
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

}  // namespace

bool AllFinite(const char* bytes, int64_t count) {
  return SimdDispatch<AllFiniteBody>(bytes, count);
}

void AddScaled(float* sum, const char* bytes, float weight, int64_t count) {
  SimdDispatch<ScaledBody<true>>(sum, bytes, weight, count);
}

void SetScaled(float* sum, const char* bytes, float weight, int64_t count) {
  SimdDispatch<ScaledBody<false>>(sum, bytes, weight, count);
}

void Divide(float* sum, float divisor, int64_t count) {
  SimdDispatch<DivideBody>(sum, divisor, count);
}

}  // namespace weir
