#include "common/math/int8.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "common/math/simd.h"

namespace weir {
namespace {

constexpr int32_t kInfinityBits = 0x7f800000;
constexpr float kSmallest = 1e-30f;  // below it 127 / magnitude may overflow

// 1.5 * 2^23: added to a float of up to 2^22, it leaves the rounded integer in
// the mantissa.
constexpr float kRounder = 12582912.0f;

struct EncodeGroupBody {
  static WEIR_KERNEL void Run(const float* __restrict in, char* __restrict out,
                              size_t count) {
    // Magnitudes order as their bits do, NaN above infinity.
    int32_t largest = 0;
    for (size_t i = 0; i < count; ++i) {
      largest = std::max(largest, std::bit_cast<int32_t>(in[i]) & 0x7fffffff);
    }
    const float magnitude = std::bit_cast<float>(largest);
    const bool finite = largest < kInfinityBits;
    const bool small = largest < std::bit_cast<int32_t>(kSmallest);
    auto* const scale = reinterpret_cast<UnalignedFloat*>(out);
    // Once in a group, so branches do no harm here.
    if (small) {
      *scale = 0.0f;
    } else if (finite) {
      *scale = magnitude / 127.0f;
    } else {
      *scale = std::numeric_limits<float>::quiet_NaN();
    }
    const float inverse = small || !finite ? 0.0f : 127.0f / magnitude;
    auto* __restrict bytes = reinterpret_cast<int8_t*>(out + sizeof(float));
    for (size_t i = 0; i < count; ++i) {
      bytes[i] = static_cast<int8_t>(
          std::bit_cast<int32_t>(in[i] * inverse + kRounder) -
          std::bit_cast<int32_t>(kRounder));
    }
  }
};

struct DecodeGroupBody {
  static WEIR_KERNEL void Run(const char* __restrict in, float* __restrict out,
                              size_t count) {
    const float scale = *reinterpret_cast<const UnalignedFloat*>(in);
    const auto* __restrict bytes =
        reinterpret_cast<const int8_t*>(in + sizeof(float));
    for (size_t i = 0; i < count; ++i) {
      out[i] = scale * static_cast<float>(bytes[i]);
    }
  }
};

template <class GroupBody>
struct GroupsBody {
  static WEIR_KERNEL void Run(const float* in, char* out, size_t count) {
    while (count > 0) {
      const size_t group = std::min(count, kInt8Group);
      GroupBody::Run(in, out, group);
      in += group;
      out += Int8Bytes(group);
      count -= group;
    }
  }
  static WEIR_KERNEL void Run(const char* in, float* out, size_t count) {
    while (count > 0) {
      const size_t group = std::min(count, kInt8Group);
      GroupBody::Run(in, out, group);
      in += Int8Bytes(group);
      out += group;
      count -= group;
    }
  }
};

}  // namespace

void FloatsToInt8(const float* in, size_t count, char* out) {
  SimdDispatch<GroupsBody<EncodeGroupBody>>(in, out, count);
}

void Int8ToFloats(const char* in, size_t count, float* out) {
  SimdDispatch<GroupsBody<DecodeGroupBody>>(in, out, count);
}

}  // namespace weir
