// Draws whole numbers whose frequency falls as a power: share(k) for k = 0 ..
// n - 1 is proportional to (k + 1)^-exponent, exactly.
//
// Threads: safe.
// Cost: no table; about one logarithm and one exponential for each draw,
//   whatever n is.
// Source: Hormann and Derflinger, "Rejection-inversion to generate variates
//         from monotone discrete distributions", ACM TOMACS 6(3), 1996.
#ifndef WORKER_DATA_FORMATS_ZIPF_H_
#define WORKER_DATA_FORMATS_ZIPF_H_

#include <cstdint>

#include "common/math/random.h"

namespace weir {

class Zipf {
 public:
  // REQUIRES: 1 <= count <= 2^40, 0 <= exponent <= 10.
  Zipf(uint64_t count, double exponent);

  uint64_t Draw(RandomStream* random) const;

 private:
  double Density(double x) const;   // x^-exponent
  double Integral(double x) const;  // of Density, from 1 to x
  double InverseIntegral(double y) const;

  const double count_;
  const double exponent_;
  double low_ = 0;  // values of the integral are drawn from [low_, high_)
  double high_ = 0;
  double sure_ = 0;  // an x this near to its whole number is always taken
};

}  // namespace weir

#endif  // WORKER_DATA_FORMATS_ZIPF_H_
