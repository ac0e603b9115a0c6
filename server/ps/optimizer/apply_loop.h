// The one loop that every optimizer runs, compiled for each SIMD level.
//
// Terms
//   kernel   a struct of float constants with `static constexpr int
//            kStateArrays` and `void Step(float g, float& w[, float& a[, float&
//            b[, float& c]]]) const`, marked WEIR_KERNEL: one element's step.
//            Branches on options are template arguments, never made per
//            element.
//
// Invariants: those of common/math/simd.h.
#ifndef SERVER_PS_OPTIMIZER_APPLY_LOOP_H_
#define SERVER_PS_OPTIMIZER_APPLY_LOOP_H_

#include <bit>
#include <cstdint>
#include <type_traits>

#include "common/math/simd.h"

namespace weir {

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian and applied in place");

struct ApplyArrays {
  float* values;
  float* state[3];  // null beyond the kernel's kStateArrays
  const char* gradient;
  int64_t count;
};

template <class Kernel>
struct ApplyBody {
  static WEIR_KERNEL void Run(Kernel kernel, ApplyArrays arrays) {
    Loop(kernel, arrays.values, arrays.state[0], arrays.state[1],
         arrays.state[2],
         reinterpret_cast<const UnalignedFloat*>(arrays.gradient),
         arrays.count);
  }

  static WEIR_KERNEL void Loop(Kernel kernel, float* __restrict w,
                               float* __restrict a, float* __restrict b,
                               float* __restrict c,
                               const UnalignedFloat* __restrict g,
                               int64_t count) {
    int64_t i = 0;
    for (; i + kStride <= count; i += kStride) {
      FetchAhead(w + i);
      if constexpr (Kernel::kStateArrays > 0) {
        FetchAhead(a + i);
      }
      if constexpr (Kernel::kStateArrays > 1) {
        FetchAhead(b + i);
      }
      if constexpr (Kernel::kStateArrays > 2) {
        FetchAhead(c + i);
      }
      for (int64_t k = 0; k < kStride; ++k) {
        StepAt(kernel, i + k, w, a, b, c, g);
      }
    }
    for (; i < count; ++i) {
      StepAt(kernel, i, w, a, b, c, g);
    }
  }

  static WEIR_KERNEL void StepAt(const Kernel& kernel, int64_t i,
                                 float* __restrict w, float* __restrict a,
                                 float* __restrict b, float* __restrict c,
                                 const UnalignedFloat* __restrict g) {
    if constexpr (Kernel::kStateArrays == 0) {
      kernel.Step(g[i], w[i]);
    } else if constexpr (Kernel::kStateArrays == 1) {
      kernel.Step(g[i], w[i], a[i]);
    } else if constexpr (Kernel::kStateArrays == 2) {
      kernel.Step(g[i], w[i], a[i], b[i]);
    } else {
      kernel.Step(g[i], w[i], a[i], b[i], c[i]);
    }
  }

  // Two cache lines, two kilobytes on. The processor's own prefetcher starts
  // anew in every page, and in so short a loop it never catches up; the
  // gradient needs none, as the search for NaN has just read it. Measured:
  // docs/performance.md, "The store alone".
  static WEIR_KERNEL void FetchAhead(const float* at) {
    __builtin_prefetch(at + kAhead);
    __builtin_prefetch(at + kAhead + kStride / 2);
  }

  static constexpr int64_t kStride = 32;  // elements
  static constexpr int64_t kAhead = 512;
};

// Calls use(std::true_type()) or use(std::false_type()): an argument of `use`
// can be a template argument of a kernel.
template <class Use>
void WithFlag(bool flag, const Use& use) {
  if (flag) {
    use(std::true_type());
  } else {
    use(std::false_type());
  }
}

template <class Kernel>
void ApplyKernel(const Kernel& kernel, float* values, float* const* state,
                 const char* gradient, int64_t count) {
  ApplyArrays arrays = {values, {nullptr, nullptr, nullptr}, gradient, count};
  for (int i = 0; i < Kernel::kStateArrays; ++i) {
    arrays.state[i] = state[i];
  }
  SimdDispatch<ApplyBody<Kernel>>(kernel, arrays);
}

}  // namespace weir

#endif  // SERVER_PS_OPTIMIZER_APPLY_LOOP_H_
