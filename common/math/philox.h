// Philox4x32-10: four random words for a key and a counter.
//
// Place: behind common/math/random.h, and in GPU kernels, which take it as it
// is; everything else includes common/math/random.h.
//
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC11.
#ifndef COMMON_MATH_PHILOX_H_
#define COMMON_MATH_PHILOX_H_

#include <cstdint>

namespace weir {

struct PhiloxWords {
  uint32_t word[4];
};

constexpr PhiloxWords Philox4x32(uint64_t key, uint64_t counter_high,
                                 uint64_t counter_low) {
  uint32_t c0 = static_cast<uint32_t>(counter_low);
  uint32_t c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high);
  uint32_t c3 = static_cast<uint32_t>(counter_high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace weir

#endif  // COMMON_MATH_PHILOX_H_
