// One element's step of the optimizers that variables and rows of tables share,
// so that both have the same bits.
//
// Place: kernels for apply_loop.h (variables) and
// server/ps/table/row_optimizer.h (rows). The equations are in sgd.cc,
// adagrad.cc and ftrl.cc.
//
// Invariants: those of common/math/simd.h.
#ifndef SERVER_PS_OPTIMIZER_STEP_KERNELS_H_
#define SERVER_PS_OPTIMIZER_STEP_KERNELS_H_

#include <cmath>

#include "common/math/simd.h"

namespace weir {

template <bool kDecay>
struct SgdKernel {
  static constexpr int kStateArrays = 0;
  float decay, minus_rate;

  WEIR_KERNEL void Step(float g, float& w) const {
    const float d = kDecay ? g + decay * w : g;
    w = w + minus_rate * d;
  }
};

template <bool kDecay>
struct AdagradKernel {
  static constexpr int kStateArrays = 1;
  float decay, minus_rate, epsilon;

  WEIR_KERNEL void Step(float g, float& w, float& sum) const {
    g = kDecay ? g + decay * w : g;
    const float s = sum + g * g;
    sum = s;
    w = w + (minus_rate * g) / (std::sqrt(s) + epsilon);
  }
};

// kRoot: the power is 0.5 and sqrt, which vectorises, takes the place of pow.
template <bool kRoot>
struct FtrlKernel {
  static constexpr int kStateArrays = 2;
  float power, rate, l1, two_l2, two_shrinkage;

  WEIR_KERNEL float Power(float n) const {
    return kRoot ? std::sqrt(n) : std::pow(n, power);
  }

  WEIR_KERNEL void Step(float g, float& w, float& accumulator,
                        float& linear) const {
    const float n = accumulator;
    const float n_new = n + g * g;
    const float power_new = Power(n_new);
    const float shrunk = g + two_shrinkage * w;
    const float z = linear + (shrunk - (power_new - Power(n)) / rate * w);
    const float quadratic = power_new / rate + two_l2;
    const float moved = (std::copysign(l1, z) - z) / quadratic;
    w = std::fabs(z) > l1 ? moved : 0.0f;
    accumulator = n_new;
    linear = z;
  }
};

// `spec` is Ftrl or TableFtrl. REQUIRES: rate is not 0 as a float, since the
// equations divide by it.
template <bool kRoot, class Spec>
FtrlKernel<kRoot> FtrlKernelOf(const Spec& spec, double rate) {
  return {static_cast<float>(-spec.learning_rate_power()),
          static_cast<float>(rate), static_cast<float>(spec.l1()),
          static_cast<float>(2 * (spec.l2() + spec.beta() / (2 * rate))),
          static_cast<float>(2 * spec.l2_shrinkage())};
}

}  // namespace weir

#endif  // SERVER_PS_OPTIMIZER_STEP_KERNELS_H_
