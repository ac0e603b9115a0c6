// Random numbers as a pure function of (key, counter).
//
// Initialisers, shuffles, dropout masks and generated data never depend on how
// many numbers were drawn before, so any process can make any of them again.
//
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC11:
//         Philox4x32-10.
#ifndef COMMON_MATH_RANDOM_H_
#define COMMON_MATH_RANDOM_H_

#include <array>
#include <cstdint>

namespace weir {

// Four random 32-bit words for (key, counter).
std::array<uint32_t, 4> Philox(uint64_t key, uint64_t counter_high,
                               uint64_t counter_low);

// One 64-bit word that depends on every bit of both; derives keys.
uint64_t MixKey(uint64_t a, uint64_t b);

// A number in [0, 1), uniform, with 24 bits.
inline float UnitFloat(uint32_t word) {
  return static_cast<float>(word >> 8) * (1.0f / 16777216.0f);
}

// A sequence of draws from one key, for code where order is natural.
class RandomStream {
 public:
  explicit RandomStream(uint64_t key) : key_(key) {}
  uint32_t Next32();
  uint64_t Next64() { return (uint64_t{Next32()} << 32) | Next32(); }
  float NextFloat() { return UnitFloat(Next32()); }  // [0, 1)
  float NextFloat(float low, float high) {
    return low + (high - low) * NextFloat();
  }
  // A number in [0, bound), uniform but for a bias below 2^-32.
  // REQUIRES: bound >= 1.
  uint32_t NextBelow(uint32_t bound) {
    return static_cast<uint32_t>((uint64_t{Next32()} * bound) >> 32);
  }
  float NextNormal();  // mean 0, variance 1 (Box-Muller)

 private:
  const uint64_t key_;
  uint64_t counter_ = 0;
  int used_ = 4;
  std::array<uint32_t, 4> words_ = {};
};

}  // namespace weir

#endif  // COMMON_MATH_RANDOM_H_
