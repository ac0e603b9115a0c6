#include "common/random.h"

#include <cmath>

namespace weir {

std::array<uint32_t, 4> Philox(uint64_t key, uint64_t counter_high,
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
  return {c0, c1, c2, c3};
}

uint64_t MixKey(uint64_t a, uint64_t b) {
  const std::array<uint32_t, 4> words = Philox(a, 0x57656972u, b);
  return (uint64_t{words[1]} << 32) | words[0];
}

uint32_t RandomStream::Next32() {
  if (used_ == 4) {
    words_ = Philox(key_, 0, counter_++);
    used_ = 0;
  }
  return words_[used_++];
}

float RandomStream::NextNormal() {
  // 1 - u is in (0, 1], so the logarithm is finite.
  const double u = 1.0 - static_cast<double>(NextFloat());
  const double v = static_cast<double>(NextFloat());
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) *
                            std::cos(2.0 * M_PI * v));
}

}  // namespace weir
