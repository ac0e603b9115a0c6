// Operations on every element for itself; no sums, so no order to keep.
#include "common/math/philox.h"
#include "worker/compute/cuda/device.h"

namespace weir::cuda {
namespace {

// y = f(a, b) for every element; the first `quads` * 4 of them 16 bytes at a
// time. y may be a or b: a thread reads an element before it writes the same
// one, and no other thread touches it.
template <class Function, class Out>
__global__ void MapKernel(int64_t quads, int64_t count, Function f,
                          const float* a, const float* b, Out* y) {
  const auto first = ThreadIndex<int64_t>();
  const auto stride = ThreadCount<int64_t>();
  for (int64_t q = first; q < quads; q += stride) {
    const Vector<4> va = Load<4>(a + 4 * q);
    Vector<4> vb = {};
    // Callers pass a for b, too, where the function has one argument.
    if constexpr (Function::kBinary) {
      vb = Load<4>(b + 4 * q);
    }
    Vector<4> result;
    for (int j = 0; j < 4; ++j) {
      result.v[j] = f(va.v[j], vb.v[j]);
    }
    Store(result, y + 4 * q);
  }
  for (int64_t i = 4 * quads + first; i < count; i += stride) {
    float vb = 0.0f;
    if constexpr (Function::kBinary) {
      vb = b[i];
    }
    Store(Vector<1>{{f(a[i], vb)}}, y + i);
  }
}

template <class Function, class Out>
void Map(cudaStream_t stream, int64_t count, Function f, const float* a,
         const float* b, Out* y) {
  if (count == 0) {
    return;
  }
  // I2 of kernels.h. Tensors are aligned, but parts of them need not be: then
  // all elements go through the second loop, one by one.
  const bool aligned =
      Aligned16(a) && Aligned16(y) && (!Function::kBinary || Aligned16(b));
  const int64_t quads = aligned ? count / 4 : 0;
  Launch(stream, BlocksFor(aligned ? CeilDiv(count, 4) : count), dim3(kThreads),
         MapKernel<Function, Out>, quads, count, f, a, b, y);
}

struct Relu {
  static constexpr bool kBinary = false;
  __device__ float operator()(float x, float) const {
    return x <= 0.0f ? 0.0f : x;  // NaN stays NaN
  }
};
struct SigmoidOf {
  static constexpr bool kBinary = false;
  __device__ float operator()(float x, float) const { return Sigmoid(x); }
};
struct Tanh {
  static constexpr bool kBinary = false;
  __device__ float operator()(float x, float) const { return tanhf(x); }
};
// Backward passes, from the output y and dy.
struct ReluBackward {
  static constexpr bool kBinary = true;
  __device__ float operator()(float y, float dy) const {
    return y <= 0.0f ? 0.0f : dy;
  }
};
struct SigmoidBackward {
  static constexpr bool kBinary = true;
  __device__ float operator()(float y, float dy) const {
    return dy * (y * (1.0f - y));
  }
};
struct TanhBackward {
  static constexpr bool kBinary = true;
  __device__ float operator()(float y, float dy) const {
    return dy * (1.0f - y * y);
  }
};
struct Sum {
  static constexpr bool kBinary = true;
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Product {
  static constexpr bool kBinary = true;
  __device__ float operator()(float a, float b) const { return a * b; }
};
struct WeightedSum {
  static constexpr bool kBinary = true;
  float a_weight = 1.0f;
  float b_weight = 1.0f;
  __device__ float operator()(float a, float b) const {
    return a_weight * a + b_weight * b;
  }
};
struct Times {
  static constexpr bool kBinary = false;
  float weight = 1.0f;
  __device__ float operator()(float x, float) const { return weight * x; }
};
struct Same {
  static constexpr bool kBinary = false;
  __device__ float operator()(float x, float) const { return x; }
};

// A kernel of its own, since Map has two inputs. The first `quads` * 4 elements
// go 16 bytes at a time.
__global__ void MultiplyAddKernel(int64_t quads, int64_t count, const float* a,
                                  const float* b, const float* c, float* y) {
  const auto first = ThreadIndex<int64_t>();
  const auto stride = ThreadCount<int64_t>();
  for (int64_t q = first; q < quads; q += stride) {
    const Vector<4> va = Load<4>(a + 4 * q);
    const Vector<4> vb = Load<4>(b + 4 * q);
    Vector<4> sum = Load<4>(c + 4 * q);
    for (int j = 0; j < 4; ++j) {
      sum.v[j] += va.v[j] * vb.v[j];
    }
    Store(sum, y + 4 * q);
  }
  for (int64_t i = 4 * quads + first; i < count; i += stride) {
    y[i] = c[i] + a[i] * b[i];
  }
}

// A thread makes four random words at a time and uses them for four elements,
// so the mask depends on key and index alone (operations.h).
__global__ void DropoutKernel(const uint64_t* keys, int key_index, float rate,
                              int64_t count, bool aligned, const float* x,
                              float* y) {
  // Read here and not by the host: a captured graph is replayed with new keys.
  const uint64_t key = keys[key_index];
  const float factor = 1.0f / (1.0f - rate);
  for (auto q = ThreadIndex<int64_t>(); 4 * q < count;
       q += ThreadCount<int64_t>()) {
    const PhiloxWords words = Philox4x32(key, 0, static_cast<uint64_t>(q));
    const int64_t begin = 4 * q;
    float mask[4];
    for (int j = 0; j < 4; ++j) {
      // UnitFloat of common/math/random.h
      const float unit =
          static_cast<float>(words.word[j] >> 8) * (1.0f / 16777216.0f);
      mask[j] = unit >= rate ? factor : 0.0f;
    }
    if (aligned && begin + 4 <= count) {
      Vector<4> value = Load<4>(x + begin);
      for (int j = 0; j < 4; ++j) {
        // 0 * x would be NaN for an infinite x.
        value.v[j] = mask[j] == 0.0f ? 0.0f : value.v[j] * factor;
      }
      Store(value, y + begin);
    } else {
      for (int j = 0; j < 4 && begin + j < count; ++j) {
        y[begin + j] = mask[j] == 0.0f ? 0.0f : x[begin + j] * factor;
      }
    }
  }
}

// y = x + bias, kCount elements at a time; a row has `width` of them.
template <int kCount>
__global__ void FromBf16Kernel(int64_t count, int64_t width, const Bf16* x,
                               const float* bias, float* y) {
  for (auto i = kCount * ThreadIndex<int64_t>(); i < count;
       i += kCount * ThreadCount<int64_t>()) {
    Vector<kCount> value = Load<kCount>(x + i);
    if (bias != nullptr) {
      const Vector<kCount> added = Load<kCount>(bias + i % width);
      for (int j = 0; j < kCount; ++j) {
        value.v[j] += added.v[j];
      }
    }
    Store(value, y + i);
  }
}

// Four bytes a thread where all is aligned. The table stays in the cache.
template <bool kQuads>
__global__ void BytesToFloatsKernel(op::BytesToFloats o) {
  constexpr int kStep = kQuads ? 4 : 1;
  for (auto i = kStep * ThreadIndex<int64_t>(); i < o.count;
       i += kStep * ThreadCount<int64_t>()) {
    if constexpr (kQuads) {
      const uint32_t bytes = *reinterpret_cast<const uint32_t*>(o.x + i);
      Vector<4> value;
      for (int j = 0; j < 4; ++j) {
        value.v[j] = o.value_of_byte[bytes >> (8 * j) & 0xffu];
      }
      Store(value, o.y + i);
    } else {
      o.y[i] = o.value_of_byte[o.x[i]];
    }
  }
}

}  // namespace

void Enqueue(cudaStream_t stream, const op::ActivationForward& o) {
  switch (o.kind) {
    case ActivationKind::kRelu:
      return Map(stream, o.count, Relu(), o.x, o.x, o.y);
    case ActivationKind::kSigmoid:
      return Map(stream, o.count, SigmoidOf(), o.x, o.x, o.y);
    case ActivationKind::kTanh:
      return Map(stream, o.count, Tanh(), o.x, o.x, o.y);
  }
}

void Enqueue(cudaStream_t stream, const op::ActivationBackward& o) {
  switch (o.kind) {
    case ActivationKind::kRelu:
      return Map(stream, o.count, ReluBackward(), o.y, o.dy, o.dx);
    case ActivationKind::kSigmoid:
      return Map(stream, o.count, SigmoidBackward(), o.y, o.dy, o.dx);
    case ActivationKind::kTanh:
      return Map(stream, o.count, TanhBackward(), o.y, o.dy, o.dx);
  }
}

void Enqueue(cudaStream_t stream, const op::Dropout& o, const uint64_t* keys) {
  if (o.count > 0) {
    Launch(stream, BlocksFor(CeilDiv(o.count, 4)), dim3(kThreads),
           DropoutKernel, keys, o.key_index, o.rate, o.count,
           Aligned16(o.x) && Aligned16(o.y), o.x, o.y);
  }
}

void Enqueue(cudaStream_t stream, const op::Add& o) {
  Map(stream, o.count, Sum(), o.a, o.b, o.y);
}

void Enqueue(cudaStream_t stream, const op::MultiplyAdd& o) {
  if (o.c == nullptr) {
    return Map(stream, o.count, Product(), o.a, o.b, o.y);
  }
  const bool aligned =
      Aligned16(o.a) && Aligned16(o.b) && Aligned16(o.c) && Aligned16(o.y);
  if (o.count > 0) {
    Launch(stream, BlocksFor(aligned ? CeilDiv(o.count, 4) : o.count),
           dim3(kThreads), MultiplyAddKernel, aligned ? o.count / 4 : 0,
           o.count, o.a, o.b, o.c, o.y);
  }
}

void Enqueue(cudaStream_t stream, const op::BytesToFloats& o) {
  if (o.count == 0) {
    return;
  }
  if (Aligned16(o.x) && Aligned16(o.y) && o.count % 4 == 0) {
    Launch(stream, BlocksFor(o.count / 4), dim3(kThreads),
           BytesToFloatsKernel<true>, o);
  } else {
    Launch(stream, BlocksFor(o.count), dim3(kThreads),
           BytesToFloatsKernel<false>, o);
  }
}

void Scale(cudaStream_t stream, int64_t count, float a, float* x) {
  Map(stream, count, Times{a}, x, x, x);
}

void ScaleAdd(cudaStream_t stream, int64_t count, float a, const float* x,
              float b, float* y) {
  Map(stream, count, WeightedSum{a, b}, x, y, y);
}

void ToBf16(cudaStream_t stream, int64_t count, const float* x, Bf16* y) {
  Map(stream, count, Same(), x, x, y);
}

void FromBf16(cudaStream_t stream, int64_t rows, int64_t width, const Bf16* x,
              const float* bias, float* y) {
  const int64_t count = rows * width;
  if (count == 0) {
    return;
  }
  const bool quads = Aligned16(x) && Aligned16(y) && count % 4 == 0 &&
                     (bias == nullptr || (Aligned16(bias) && width % 4 == 0));
  if (quads) {
    Launch(stream, BlocksFor(count / 4), dim3(kThreads), FromBf16Kernel<4>,
           count, width, x, bias, y);
  } else {
    Launch(stream, BlocksFor(count), dim3(kThreads), FromBf16Kernel<1>, count,
           width, x, bias, y);
  }
}

}  // namespace weir::cuda
