#include "common/math/random.h"

#include <cmath>

#include "common/math/philox.h"

namespace weir {

std::array<uint32_t, 4> Philox(uint64_t key, uint64_t counter_high,
                               uint64_t counter_low) {
  const PhiloxWords words = Philox4x32(key, counter_high, counter_low);
  return {words.word[0], words.word[1], words.word[2], words.word[3]};
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
