// Loops compiled for several instruction sets, one of them chosen at run time.
//
// Place: under common/math/kernels and the optimizers. The build has no -march
// flag, so one binary runs everywhere; target_clones would need ifunc, which
// the sanitizers do not survive.
//
// Terms
//   body   a struct with `static ... Run(args)`, marked WEIR_KERNEL: a plain
//          loop over plain arithmetic. SimdDispatch<Body> holds one copy of it
//          for each level.
//
// Invariants
//   I1. Every level gives the same bits: +, -, *, / and sqrt are correctly
//       rounded one by one, never fused (-ffp-contract=off) nor reordered.
//       So vector body and tail agree too, wherever a range is cut.
// Threads: safe. Only tests call SetSimdLevelForTest.
#ifndef COMMON_MATH_SIMD_H_
#define COMMON_MATH_SIMD_H_

// Hogwild: these loops may read and write values that other threads write at
// the same time, on purpose. With `lock_free` several pushes are applied to one
// block at once, and a pull reads a block while it changes. What may be lost: a
// whole single addition (one of two concurrent read-modify-writes of one
// element), and the value and the optimizer state of one element may stem from
// different pushes.
// Nothing else: aligned 4-byte loads and stores do not tear on any processor
// that Weir runs on. Relaxed atomics would say the same to the compiler, but
// no compiler vectorises them. Every other function is checked by TSan.
// Source: Niu, Recht, Re, Wright, "Hogwild!: A Lock-Free Approach to
//         Parallelizing Stochastic Gradient Descent", NIPS 2011, section 4.
#define WEIR_HOGWILD __attribute__((no_sanitize("thread")))

// Marks a body's Run and what Run calls for each element.
#define WEIR_KERNEL inline __attribute__((always_inline)) WEIR_HOGWILD

#if defined(__x86_64__)
#define WEIR_SIMD_X86 1
#else
#define WEIR_SIMD_X86 0
#endif

namespace weir {

// Payload bytes of a message start at any address.
typedef float UnalignedFloat __attribute__((aligned(1), may_alias));

enum class SimdLevel : int {
  kBaseline = 0,  // SSE2 on x86-64
  kAvx2 = 1,
  kAvx512 = 2,
};

// The best level of this processor.
SimdLevel BestSimdLevel();
// The level in use: the best, unless a test asked for less.
SimdLevel ActiveSimdLevel();
// REQUIRES: level <= BestSimdLevel().
void SetSimdLevelForTest(SimdLevel level);

namespace simd_internal {

#if WEIR_SIMD_X86
template <class Body, class... Args>
__attribute__((noinline, target("avx2"))) WEIR_HOGWILD auto RunAvx2(
    Args... args) {
  return Body::Run(args...);
}

template <class Body, class... Args>
__attribute__((noinline, target("avx512f,avx512bw,avx512dq,avx512vl")))
WEIR_HOGWILD auto
RunAvx512(Args... args) {
  return Body::Run(args...);
}
#endif

template <class Body, class... Args>
__attribute__((noinline)) WEIR_HOGWILD auto RunBaseline(Args... args) {
  return Body::Run(args...);
}

}  // namespace simd_internal

// Returns Body::Run(args...), compiled for the active level. Arguments are
// passed by value.
template <class Body, class... Args>
auto SimdDispatch(Args... args) {
#if WEIR_SIMD_X86
  switch (ActiveSimdLevel()) {
    case SimdLevel::kAvx512:
      return simd_internal::RunAvx512<Body, Args...>(args...);
    case SimdLevel::kAvx2:
      return simd_internal::RunAvx2<Body, Args...>(args...);
    case SimdLevel::kBaseline:
      break;
  }
#endif
  return simd_internal::RunBaseline<Body, Args...>(args...);
}

}  // namespace weir

#endif  // COMMON_MATH_SIMD_H_
