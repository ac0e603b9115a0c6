// The things that the kernels of this folder share: index ranges, 16-byte
// vectors, sums over a warp, bfloat16. For .cu files only.
#ifndef WORKER_COMPUTE_CUDA_DEVICE_H_
#define WORKER_COMPUTE_CUDA_DEVICE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "worker/compute/cuda/kernels.h"
#include "worker/compute/cuda/launch.h"

namespace weir::cuda {

constexpr int kWarp = 32;
constexpr int kThreads = 256;  // of a block, where nothing else asks
constexpr unsigned kAllLanes = 0xffffffffu;
// So many blocks fill any device several times. Loops in the kernels take the
// rest.
constexpr int64_t kBlocksMax = 132 * 32;

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Blocks of kThreads for a loop that strides over `count`.
inline dim3 BlocksFor(int64_t count) {
  return dim3(static_cast<unsigned>(
      std::clamp<int64_t>(CeilDiv(count, kThreads), 1, kBlocksMax)));
}

inline bool Aligned16(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

template <class Index>
__device__ inline Index ThreadIndex() {
  return static_cast<Index>(blockIdx.x) * static_cast<Index>(blockDim.x) +
         static_cast<Index>(threadIdx.x);
}

template <class Index>
__device__ inline Index ThreadCount() {
  return static_cast<Index>(gridDim.x) * static_cast<Index>(blockDim.x);
}

// kCount floats that are read and written together.
template <int kCount>
struct Vector {
  float v[kCount];
};

template <int kCount>
__device__ inline Vector<kCount> Load(const float* p) {
  Vector<kCount> result;
  if constexpr (kCount == 4) {
    [[maybe_unused]] const float4 q = *reinterpret_cast<const float4*>(p);
    result = {{q.x, q.y, q.z, q.w}};
  } else {
    result.v[0] = *p;
  }
  return result;
}

__device__ inline Bf16 RoundToBf16(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<Bf16>((bits >> 16) | 0x40u);  // a quiet NaN
  }
  return static_cast<Bf16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

template <int kCount>
__device__ inline Vector<kCount> Load(const Bf16* p) {
  const auto widened = [](Bf16 bits) {
    return __uint_as_float(static_cast<uint32_t>(bits) << 16);
  };
  Vector<kCount> result;
  if constexpr (kCount == 4) {
    [[maybe_unused]] const ushort4 q = *reinterpret_cast<const ushort4*>(p);
    result = {{widened(q.x), widened(q.y), widened(q.z), widened(q.w)}};
  } else {
    result.v[0] = widened(*p);
  }
  return result;
}

template <int kCount>
__device__ inline void Store(const Vector<kCount>& value, float* p) {
  if constexpr (kCount == 4) {
    *reinterpret_cast<float4*>(p) =
        make_float4(value.v[0], value.v[1], value.v[2], value.v[3]);
  } else {
    *p = value.v[0];
  }
}

template <int kCount>
__device__ inline void Store(const Vector<kCount>& value, Bf16* p) {
  if constexpr (kCount == 4) {
    *reinterpret_cast<ushort4*>(p) =
        make_ushort4(RoundToBf16(value.v[0]), RoundToBf16(value.v[1]),
                     RoundToBf16(value.v[2]), RoundToBf16(value.v[3]));
  } else {
    *p = RoundToBf16(value.v[0]);
  }
}

__device__ inline float Sigmoid(float x) {
  // exp of a negative number only: never overflows.
  const float e = expf(-fabsf(x));
  return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}

// The sum over the warp's lanes, in one order, in every lane.
template <class T>
__device__ inline T WarpSum(T value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

// ------------------------------------------------------------ a warp per row

constexpr int kWarpsPerBlock = 4;

inline dim3 BlocksForRows(int64_t rows) {
  return dim3(static_cast<unsigned>(CeilDiv(rows, kWarpsPerBlock)));
}

// The row of this warp. The lanes of a warp agree, so all leave together where
// there is no such row.
__device__ inline int64_t WarpRow() {
  return static_cast<int64_t>(blockIdx.x) * kWarpsPerBlock +
         threadIdx.x / kWarp;
}

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_DEVICE_H_
