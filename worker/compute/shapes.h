// The shapes and kinds of compute operations; see worker/compute/operations.h.
#ifndef WORKER_COMPUTE_SHAPES_H_
#define WORKER_COMPUTE_SHAPES_H_

#include <cstdint>

namespace weir {

// C [m, n] = op(A) op(B); op transposes when its flag is set.
struct MatMulShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;  // A is [k, m], else [m, k]
  bool transpose_b = false;  // B is [n, k], else [k, n]
};

struct Conv2dShape {
  int64_t batch = 0;
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t filters = 0;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;

  constexpr int64_t out_height() const { return Out(height); }
  constexpr int64_t out_width() const { return Out(width); }
  constexpr int64_t Out(int64_t in) const {
    return (in + 2 * padding - kernel) / stride + 1;
  }
  constexpr int64_t x_elements() const {
    return batch * height * width * channels;
  }
  constexpr int64_t y_elements() const {
    return batch * out_height() * out_width() * filters;
  }
  constexpr int64_t kernel_elements() const {
    return filters * channels * kernel * kernel;
  }
};

enum class PoolKind : int { kMax = 0, kAverage = 1 };

struct PoolShape {
  int64_t batch = 0;
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t size = 1;
  int64_t stride = 1;
  int64_t padding = 0;

  constexpr int64_t out_height() const { return Out(height); }
  constexpr int64_t out_width() const { return Out(width); }
  constexpr int64_t Out(int64_t in) const {
    return (in + 2 * padding - size) / stride + 1;
  }
  constexpr int64_t x_elements() const {
    return batch * height * width * channels;
  }
  constexpr int64_t y_elements() const {
    return batch * out_height() * out_width() * channels;
  }
};

enum class ActivationKind : int { kRelu = 0, kSigmoid = 1, kTanh = 2 };

// Which elements of a matrix are normalised together.
enum class NormOver : int { kRow = 0, kColumn = 1 };

enum class LossKind : int {
  kSoftmaxCrossEntropy = 0,
  kSigmoidCrossEntropy = 1,
  kMeanSquaredError = 2,
};

// Lists of rows of a matrix, in device memory: list l has the entries
// index[offsets[l]] to index[offsets[l + 1] - 1], each with its weight.
struct RowLists {
  int64_t count = 0;
  const int32_t* offsets = nullptr;  // [count + 1]
  const int32_t* index = nullptr;
  const float* weights = nullptr;  // null: every weight is 1
};

// What is made of the products of all pairs of a sample's vectors.
enum class PairKind : int { kSum = 0, kDots = 1 };

// x [batch, vectors, dim]: interactions are between the vectors of a sample.
struct VectorsShape {
  int64_t batch = 0;
  int64_t vectors = 0;
  int64_t dim = 0;

  constexpr int64_t pairs() const { return vectors * (vectors - 1) / 2; }
  constexpr int64_t elements() const { return batch * vectors * dim; }
  constexpr int64_t results(PairKind kind) const {
    return kind == PairKind::kSum ? batch : batch * pairs();
  }
};

// The type to which products and convolutions round their factors; all else is
// computed in fp32. A backend keeps the precision with which it was made, and
// `cpu` always computes in fp32. See Compute.Precision in proto/job_spec.proto.
enum class Precision : int { kFp32 = 0, kTf32 = 1, kBf16 = 2 };

}  // namespace weir

#endif  // WORKER_COMPUTE_SHAPES_H_
