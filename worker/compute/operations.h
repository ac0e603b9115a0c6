// The operations of a compute backend, one struct each. Backend::Run takes any.
//
// Place: layers fill them; worker/compute/cpu, worker/compute/cuda and the
// oracle of worker/compute/check each compute all of them. A new operation is a
// struct here, a line of `Operation`, and a function in each of those.
//
// Terms
//   images         [batch, height, width, channels], row-major: channels last.
//                  Kernels: [filters, channels, kernel, kernel].
//   other tensors  row-major.
//
// Invariants: those of worker/compute/backend.h.
#ifndef WORKER_COMPUTE_OPERATIONS_H_
#define WORKER_COMPUTE_OPERATIONS_H_

#include <cstdint>
#include <variant>

#include "worker/compute/shapes.h"

namespace weir {
namespace op {

// Device pointers: what is read, and what is overwritten.
using In = const float*;
using Out = float*;

// All the floats of one output; a null pointer stands for none.
struct Written {
  const float* begin = nullptr;
  int64_t count = 0;
};
struct Outputs {
  Written all[4] = {};
};

// c [m, n] = op(A) op(B) + bias; `bias` [n] is added to every row; may be null.
struct MatMul {
  static constexpr char kName[] = "matmul";
  MatMulShape shape;
  In a, b, bias;
  Out c;
  Outputs outputs() const { return {{{c, shape.m * shape.n}}}; }
};

// sums [width] = sum over rows of x [rows, width].
struct SumRows {
  static constexpr char kName[] = "sum of rows";
  int64_t rows, width;
  In x;
  Out sums;
  Outputs outputs() const { return {{{sums, width}}}; }
};

// Cross-correlation; `bias` [filters] may be null.
struct Conv2dForward {
  static constexpr char kName[] = "convolution";
  Conv2dShape shape;
  In x, kernel, bias;
  Out y;
  Outputs outputs() const { return {{{y, shape.y_elements()}}}; }
};
struct Conv2dBackwardData {
  static constexpr char kName[] = "convolution backward data";
  Conv2dShape shape;
  In dy, kernel;
  Out dx;
  Outputs outputs() const { return {{{dx, shape.x_elements()}}}; }
};
// `dbias` may be null.
struct Conv2dBackwardKernel {
  static constexpr char kName[] = "convolution backward kernel";
  Conv2dShape shape;
  In x, dy;
  Out dkernel, dbias;
  Outputs outputs() const {
    return {{{dkernel, shape.kernel_elements()}, {dbias, shape.filters}}};
  }
};

// Max takes the first of equals in row-major order; padding never wins.
// Average divides by size * size, padding included.
struct PoolForward {
  static constexpr char kName[] = "pooling";
  PoolKind kind;
  PoolShape shape;
  In x;
  Out y;
  Outputs outputs() const { return {{{y, shape.y_elements()}}}; }
};
struct PoolBackward {
  static constexpr char kName[] = "pooling backward";
  PoolKind kind;
  PoolShape shape;
  In x, dy;
  Out dx;
  Outputs outputs() const { return {{{dx, shape.x_elements()}}}; }
};

struct ActivationForward {  // y may be x
  static constexpr char kName[] = "activation";
  ActivationKind kind;
  int64_t count;
  In x;
  Out y;
  Outputs outputs() const { return {{{y, count}}}; }
};
// Computes dx from the output y and from dy. dx may be dy.
struct ActivationBackward {
  static constexpr char kName[] = "activation backward";
  ActivationKind kind;
  int64_t count;
  In y, dy;
  Out dx;
  Outputs outputs() const { return {{{dx, count}}}; }
};

// y[i] = x[i] / (1 - rate) where UnitFloat(Philox(key, 0, i / 4)[i % 4]) >=
// rate, else 0; key = keys[key_index], of Backend::SetKeys. It is its own
// backward pass. y may be x.
struct Dropout {
  static constexpr char kName[] = "dropout";
  int key_index;
  float rate;
  int64_t count;
  In x;
  Out y;
  Outputs outputs() const { return {{{y, count}}}; }
};

// Normalises each row of x [rows, width], or each column: then a column is a
// channel. The caller keeps mean and rstd, [rows] or [width] (from the biased
// variance), for the backward pass. `variance` [width] is the unbiased one, and
// 0 for a single row; norms over rows do not write it.
struct NormForward {
  static constexpr char kName[] = "norm";
  NormOver over;
  int64_t rows, width;
  float epsilon;
  In x, scale, offset;
  Out y, mean, rstd, variance = nullptr;
  int64_t groups() const { return over == NormOver::kRow ? rows : width; }
  Outputs outputs() const {
    return {{{y, rows * width},
             {mean, groups()},
             {rstd, groups()},
             {variance, width}}};
  }
};
// `dx` may be null.
struct NormBackward {
  static constexpr char kName[] = "norm backward";
  NormOver over;
  int64_t rows, width;
  In x, scale, mean, rstd, dy;
  Out dx, dscale, doffset;
  Outputs outputs() const {
    return {{{dx, rows * width}, {dscale, width}, {doffset, width}}};
  }
};
// By columns, with statistics of another time.
struct NormInference {
  static constexpr char kName[] = "norm inference";
  int64_t rows, width;
  float epsilon;
  In x, scale, offset, mean, variance;
  Out y;
  Outputs outputs() const { return {{{y, rows * width}}}; }
};

// y = a + b; y may be a or b.
struct Add {
  static constexpr char kName[] = "add";
  int64_t count;
  In a, b;
  Out y;
  Outputs outputs() const { return {{{y, count}}}; }
};
// y = a * b + c; c may be null: a * b. y may be any of them.
struct MultiplyAdd {
  static constexpr char kName[] = "multiply and add";
  int64_t count;
  In a, b, c;
  Out y;
  Outputs outputs() const { return {{{y, count}}}; }
};
// Copies [rows, width]; the other columns of y stay as they are.
struct CopyColumns {
  static constexpr char kName[] = "copy of columns";
  int64_t rows, width;
  In x;
  int64_t x_stride;
  Out y;
  int64_t y_stride;
  Outputs outputs() const { return {{{y, rows * y_stride}}}; }
};
// y[i] = value_of_byte[x[i]], a table of 256.
struct BytesToFloats {
  static constexpr char kName[] = "bytes to floats";
  int64_t count;
  const uint8_t* x;
  In value_of_byte;
  Out y;
  Outputs outputs() const { return {{{y, count}}}; }
};
// y [batch, columns, rows] from x [batch, rows, columns].
struct Transpose {
  static constexpr char kName[] = "transpose";
  int64_t batch, rows, columns;
  In x;
  Out y;
  Outputs outputs() const { return {{{y, batch * rows * columns}}}; }
};

// y[l] = sum over the entries e of list l of weight[e] * x[index[e]], for rows
// of `width`; an empty list gives zeros. With `add` y[l] += that.
struct GatherSum {
  static constexpr char kName[] = "gather sum";
  RowLists lists;
  int64_t width;
  In x;
  bool add;
  Out y;
  Outputs outputs() const { return {{{y, lists.count * width}}}; }
};
// y[l] = maximum by column over the rows of list l (NaN wins), chosen[l] the
// index of the first such row; an empty list gives zeros and -1.
struct GatherMax {
  static constexpr char kName[] = "gather max";
  RowLists lists;
  int64_t width;
  In x;
  Out y;
  int32_t* chosen;
  Outputs outputs() const { return {{{y, lists.count * width}}}; }
};
// The backward pass of GatherMax: y[l] = sum over the entries e of list l of
// x[index[e]] where chosen[index[e]] is l. With `add` y[l] += that.
struct GatherChosen {
  static constexpr char kName[] = "gather chosen";
  RowLists lists;
  int64_t width;
  In x;
  const int32_t* chosen;
  bool add;
  Out y;
  Outputs outputs() const { return {{{y, lists.count * width}}}; }
};

// The products of pairs of vectors, (1,0), (2,0), (2,1), ...: y [batch, pairs],
// or their sums, y [batch].
struct PairForward {
  static constexpr char kName[] = "products of pairs";
  PairKind kind;
  VectorsShape shape;
  In x;
  Out y;
  Outputs outputs() const { return {{{y, shape.results(kind)}}}; }
};
struct PairBackward {
  static constexpr char kName[] = "products of pairs, backward";
  PairKind kind;
  VectorsShape shape;
  In x, dy;
  Out dx;
  Outputs outputs() const { return {{{dx, shape.elements()}}}; }
};

// row_loss [rows]: the row's loss (mean squared error: its mean over width).
// row_correct [rows]: 1 where the prediction is the label (softmax: the first
//   largest logit; sigmoid: logit > 0), else 0; mean squared error: 0.
// dx [rows, width]: gradient of the mean of row_loss; may be null.
// labels: [rows] class index, [rows] 0 or 1, or [rows, width].
// REQUIRES: labels are in range; sigmoid: width = 1.
struct Loss {
  static constexpr char kName[] = "loss";
  LossKind kind;
  int64_t rows, width;
  In x, labels;
  Out row_loss, row_correct, dx;
  Outputs outputs() const {
    return {{{row_loss, rows}, {row_correct, rows}, {dx, rows * width}}};
  }
};

}  // namespace op

using Operation =
    std::variant<op::MatMul, op::SumRows, op::Conv2dForward,
                 op::Conv2dBackwardData, op::Conv2dBackwardKernel,
                 op::PoolForward, op::PoolBackward, op::ActivationForward,
                 op::ActivationBackward, op::Dropout, op::NormForward,
                 op::NormBackward, op::NormInference, op::Add, op::MultiplyAdd,
                 op::CopyColumns, op::BytesToFloats, op::Transpose,
                 op::GatherSum, op::GatherMax, op::GatherChosen,
                 op::PairForward, op::PairBackward, op::Loss>;

}  // namespace weir

#endif  // WORKER_COMPUTE_OPERATIONS_H_
