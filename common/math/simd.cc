#include "common/math/simd.h"

#include <atomic>

#include "common/base/check.h"

namespace weir {
namespace {

// I1: which level is chosen changes the speed only, so each process may choose
// for its own processor.
SimdLevel DetectSimdLevel() {
#if WEIR_SIMD_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return SimdLevel::kAvx512;
  }
  if (__builtin_cpu_supports("avx2")) {
    return SimdLevel::kAvx2;
  }
#endif
  return SimdLevel::kBaseline;
}

std::atomic<SimdLevel>& Active() {
  static std::atomic<SimdLevel> active(BestSimdLevel());
  return active;
}

}  // namespace

SimdLevel BestSimdLevel() {
  static const SimdLevel best = DetectSimdLevel();
  return best;
}

SimdLevel ActiveSimdLevel() { return Active().load(std::memory_order_relaxed); }

void SetSimdLevelForTest(SimdLevel level) {
  WEIR_CHECK(level <= BestSimdLevel());
  Active().store(level, std::memory_order_relaxed);
}

}  // namespace weir
