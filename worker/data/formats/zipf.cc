#include "worker/data/formats/zipf.h"

#include <algorithm>
#include <cmath>

namespace weir {

Zipf::Zipf(uint64_t count, double exponent)
    : count_(static_cast<double>(count)), exponent_(exponent) {
  // The paper's H(3/2) - h(1), with k counted from 1: the values of the
  // integral that give k = 1 are then exactly its share, h(1) = 1.
  low_ = Integral(1.5) - 1.0;
  high_ = Integral(count_ + 0.5);
  sure_ = 2.0 - InverseIntegral(Integral(2.5) - Density(2.0));
}

double Zipf::Density(double x) const {
  return std::exp(-exponent_ * std::log(x));
}

double Zipf::Integral(double x) const {
  // (x^(1-s) - 1) / (1 - s), which is log(x) at s = 1.
  const double log_x = std::log(x);
  const double power = (1.0 - exponent_) * log_x;
  // Near s = 1 both parts of the quotient vanish; the series is exact there.
  if (std::abs(power) < 1e-8) {
    return log_x * (1.0 + power / 2.0);
  }
  return std::expm1(power) / (1.0 - exponent_);
}

double Zipf::InverseIntegral(double y) const {
  // Rounding may bring it below the pole.
  const double power = std::max(-1.0, y * (1.0 - exponent_));
  if (std::abs(power) < 1e-8) {
    return std::exp(y * (1.0 - power / 2.0));
  }
  return std::exp(std::log1p(power) / (1.0 - exponent_));
}

uint64_t Zipf::Draw(RandomStream* random) const {
  while (true) {
    // 53 bits: 24 would leave gaps in a tail of millions.
    const double unit = static_cast<double>(random->Next64() >> 11) * 0x1.0p-53;
    const double u = high_ + unit * (low_ - high_);
    const double x = InverseIntegral(u);
    // Inversion gives the nearest whole number; rejection corrects it to the
    // exact share.
    const double k = std::clamp(std::floor(x + 0.5), 1.0, count_);
    if (k - x <= sure_ || u >= Integral(k + 0.5) - Density(k)) {
      return static_cast<uint64_t>(k) - 1;
    }
  }
}

}  // namespace weir
