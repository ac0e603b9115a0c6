// CUDA without a GPU, for tests: what kernels need to compile as C++ and run on
// the CPU, and the switches that a test sets.
//
// Place: worker/compute/cuda/launch.h includes it where __CUDACC__ is not
//   defined, kernels see CUDA's names through it. runtime.cc and cublas_lt.cc
//   define CUDA's own functions, with the real headers' prototypes.
//
// Terms
//   lazy     an operation on a stream runs only when the host waits or polls,
//            then in a seeded random order among the streams (scheduler.h).
//   garbage  fresh device memory and undefined lanes are 0xff bytes: NaN.
//
// Invariants
// I1. The threads of a block run one at a time, in a seeded random order, each
//       to its next barrier. Blocks run one after another, in random order.
//   I2. A barrier or a warp primitive that not all of its threads reach ends
//       the process with a line that names the kernel's source lines.
//   I3. A kernel's pointer arguments point into device memory of the stream's
//       device, or to pinned memory, or are null; else the process ends.
// Threads: safe, as CUDA is; everything is serialised.
// Left out: atomics, dynamic shared memory, textures, cooperative groups,
//   managed memory, memory pools. A program that uses them does not link.
//   `__shared__` is `static`. clang can poison it before each block (then it
//   has no red zones for AddressSanitizer); with gcc, which cannot put a
//   template's variables and others into one section, a block sees what an
//   earlier one left there.
#ifndef TESTS_WORKER_COMPUTE_CUDA_EMULATOR_WEIR_CUDA_EMULATOR_H_
#define TESTS_WORKER_COMPUTE_CUDA_EMULATOR_WEIR_CUDA_EMULATOR_H_

#include <cuda_runtime_api.h>
#include <math.h>  // NOLINT: device code calls expf() and fmaxf() unqualified
#include <vector_functions.h>
#include <vector_types.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

namespace weir_emulator {

struct Config {
  int devices = 1;
  int64_t bytes_per_device = int64_t{256} << 20;
  uint64_t seed = 1;
  bool driver_missing = false;
  int64_t pitch_max = 0x7fffffff;  // cudaDeviceProp::memPitch
};

// Forgets everything: memory, streams, operations that did not run, errors.
// Handles and pointers from before are invalid. Selects device 0. Without it
// WEIR_EMULATOR_DEVICES, _BYTES, _SEED and _DRIVER_MISSING of the environment
// say how it is when first used: whole processes are tested by them.
void Configure(const Config& config);

struct Counters {
  int64_t malloc_calls = 0;  // cudaMalloc that succeeded, since Configure
  int64_t launches = 0;      // kernels that ran, graphs' included
  int64_t device_bytes = 0;  // now allocated, of all devices
  int64_t device_blocks = 0;
  int64_t pinned_bytes = 0;  // now allocated or registered
  int64_t streams = 0;       // now open, likewise below
  int64_t events = 0;
  int64_t graphs = 0;
  int64_t pending = 0;  // operations that did not run yet
};
Counters Counts();

// The next call of `function` does nothing and gives `error`. An error that
// breaks a real device (an illegal address, a failed launch) is then given by
// every later call. "Launch" names kernels; cuBLASLt's functions turn any error
// into CUBLAS_STATUS_EXECUTION_FAILED.
void FailNext(cudaError_t error, const char* function);

// ------------------------------------------------ below: for kernels only

// A source position, so that messages can name it.
struct Site {
  static constexpr Site Here(const char* file = __builtin_FILE(),
                             int line = __builtin_LINE()) {
    return {file, line};
  }
  const char* file = nullptr;
  int line = 0;
};

struct Indices {
  uint3 thread = {0, 0, 0};
  uint3 block = {0, 0, 0};
  dim3 block_dim;
  dim3 grid_dim;
};
extern Indices current;  // of the thread that runs

void SyncThreads(Site site);
uint64_t Shuffle(unsigned mask, uint64_t value, unsigned source, Site site);
unsigned Ballot(unsigned mask, bool predicate, Site site);
unsigned Lane();

// Adds shared memory to what is garbage when a block begins.
bool PoisonBeforeBlocks(char* begin, char* end);

// Bit patterns travel between lanes as 64 bits.
template <class T>
T ShuffleFrom(unsigned mask, T value, unsigned source, Site site) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = Shuffle(mask, bits, source, site);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// Refuses what a device refuses: cudaGetLastError() tells.
void EnqueueKernel(cudaStream_t stream, dim3 grid, dim3 block,
                   std::function<void()> thread,
                   const std::vector<const volatile void*>& pointers);

// kernel<<<grid, block, 0, stream>>>(args...). Arguments convert as in a call
// and are copied now.
template <class... P>
void Launch(cudaStream_t stream, dim3 grid, dim3 block, void (*kernel)(P...),
            std::type_identity_t<P>... args) {
  static_assert((std::is_trivially_copyable_v<P> && ...));
  std::vector<const volatile void*> pointers;
  [[maybe_unused]] const auto note = [&pointers](const auto& arg) {
    if constexpr (std::is_pointer_v<std::decay_t<decltype(arg)>>) {
      pointers.push_back(arg);
    }
  };
  (note(args), ...);
  EnqueueKernel(
      stream, grid, block, [kernel, args...] { kernel(args...); }, pointers);
}

}  // namespace weir_emulator

// ------------------------------------------------- the language of kernels

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __constant__
#ifdef __clang__
#define __shared__ static __attribute__((section("weir_shared")))
extern "C" {
extern char __start_weir_shared[] __attribute__((weak));  // the linker's
extern char __stop_weir_shared[] __attribute__((weak));
}
[[maybe_unused]] static const bool weir_emulator_shared =  // of this library
    weir_emulator::PoisonBeforeBlocks(__start_weir_shared, __stop_weir_shared);
#else
#define __shared__ static
#endif
#define __launch_bounds__(...)

// NOLINTBEGIN(readability-identifier-naming): CUDA's names.
inline const uint3& threadIdx = weir_emulator::current.thread;
inline const uint3& blockIdx = weir_emulator::current.block;
inline const dim3& blockDim = weir_emulator::current.block_dim;
inline const dim3& gridDim = weir_emulator::current.grid_dim;
inline constexpr int warpSize = 32;

#define WEIR_EMULATOR_SITE \
  weir_emulator::Site site = weir_emulator::Site::Here()

inline void __syncthreads(WEIR_EMULATOR_SITE) {
  weir_emulator::SyncThreads(site);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, WEIR_EMULATOR_SITE) {
  weir_emulator::Ballot(mask, true, site);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              WEIR_EMULATOR_SITE) {
  return weir_emulator::Ballot(mask, predicate != 0, site);
}
inline int __any_sync(unsigned mask, int predicate, WEIR_EMULATOR_SITE) {
  return weir_emulator::Ballot(mask, predicate != 0, site) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate, WEIR_EMULATOR_SITE) {
  return weir_emulator::Ballot(mask, predicate == 0, site) == 0 ? 1 : 0;
}

// `width` cuts the warp into segments; a source past the segment's end is the
// lane itself. A lane that does not take part gives garbage.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              WEIR_EMULATOR_SITE) {
  const unsigned last = static_cast<unsigned>(width) - 1;
  const unsigned from =
      (weir_emulator::Lane() & ~last) | (static_cast<unsigned>(source) & last);
  return weir_emulator::ShuffleFrom(mask, value, from, site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  WEIR_EMULATOR_SITE) {
  const unsigned lane = weir_emulator::Lane();
  const unsigned from = lane ^ static_cast<unsigned>(lane_mask);
  const unsigned end = lane | (static_cast<unsigned>(width) - 1);
  return weir_emulator::ShuffleFrom(mask, value, from > end ? lane : from,
                                    site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   WEIR_EMULATOR_SITE) {
  const unsigned lane = weir_emulator::Lane();
  const unsigned end = lane | (static_cast<unsigned>(width) - 1);
  return weir_emulator::ShuffleFrom(
      mask, value, lane + delta > end ? lane : lane + delta, site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 WEIR_EMULATOR_SITE) {
  const unsigned lane = weir_emulator::Lane();
  const unsigned in_segment = lane & (static_cast<unsigned>(width) - 1);
  return weir_emulator::ShuffleFrom(
      mask, value, delta > in_segment ? lane : lane - delta, site);
}
#undef WEIR_EMULATOR_SITE

template <class T>
T __ldg(const T* address) {
  return *address;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((uint64_t{a} * b) >> 32);
}
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float rsqrtf(float x) {
  return static_cast<float>(1.0 / sqrt(static_cast<double>(x)));
}
// glibc declares functions of these names that it does not have.
#define __expf(x) weir_emulator_expf(x)
#define __logf(x) weir_emulator_logf(x)
// The product rounds before the power, as on the device.
inline float weir_emulator_expf(float x) {
  return exp2f(x * 1.4426950408889634f);
}
inline float weir_emulator_logf(float x) {
  return log2f(x) * 0.69314718055994531f;
}

// The very overloads of CUDA, so that a call that nvcc calls ambiguous is
// ambiguous here.
#define WEIR_EMULATOR_MIN_MAX(R, A, B)                    \
  constexpr R min(A x, B y) {                             \
    const R a = static_cast<R>(x), b = static_cast<R>(y); \
    return a < b ? a : b;                                 \
  }                                                       \
  constexpr R max(A x, B y) {                             \
    const R a = static_cast<R>(x), b = static_cast<R>(y); \
    return a < b ? b : a;                                 \
  }
#define WEIR_EMULATOR_MIN_MAX_OF(S, U) \
  WEIR_EMULATOR_MIN_MAX(S, S, S)       \
  WEIR_EMULATOR_MIN_MAX(U, U, U)       \
  WEIR_EMULATOR_MIN_MAX(U, S, U)       \
  WEIR_EMULATOR_MIN_MAX(U, U, S)
WEIR_EMULATOR_MIN_MAX_OF(int, unsigned)
WEIR_EMULATOR_MIN_MAX_OF(long, unsigned long)            // NOLINT
WEIR_EMULATOR_MIN_MAX_OF(long long, unsigned long long)  // NOLINT
#undef WEIR_EMULATOR_MIN_MAX_OF
#undef WEIR_EMULATOR_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double max(double a, float b) { return fmax(a, b); }
// NOLINTEND(readability-identifier-naming)

#endif  // TESTS_WORKER_COMPUTE_CUDA_EMULATOR_WEIR_CUDA_EMULATOR_H_
