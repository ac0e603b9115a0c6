// Every operation of worker/compute/operations.h, naively and in double.
//
// Place: the oracle of operation_checks.h. reference_test proves the backward
// operations by finite differences of the forward ones.
// Threads: safe; there is no state.
#ifndef WORKER_COMPUTE_CHECK_REFERENCE_H_
#define WORKER_COMPUTE_CHECK_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "worker/compute/shapes.h"

namespace weir::reference {

using Values = std::vector<double>;

Values MatMul(const MatMulShape& shape, const Values& a, const Values& b,
              const Values& bias);  // bias may be empty

Values Conv2d(const Conv2dShape& shape, const Values& x, const Values& kernel,
              const Values& bias);  // bias may be empty
struct Conv2dGradients {
  Values x, kernel, bias;
};
Conv2dGradients Conv2dBackward(const Conv2dShape& shape, const Values& x,
                               const Values& kernel, const Values& dy);

Values Pool(PoolKind kind, const PoolShape& shape, const Values& x);
Values PoolBackward(PoolKind kind, const PoolShape& shape, const Values& x,
                    const Values& dy);

Values Activation(ActivationKind kind, const Values& x);
Values ActivationBackward(ActivationKind kind, const Values& x,
                          const Values& dy);

// Of x [rows, width]; scale and offset are always by column.
struct NormResult {
  Values y;
  Values mean, variance;  // by group; biased
};
NormResult Norm(NormOver over, int64_t rows, int64_t width, double epsilon,
                const Values& x, const Values& scale, const Values& offset);
struct NormGradients {
  Values x, scale, offset;
};
NormGradients NormBackward(NormOver over, int64_t rows, int64_t width,
                           double epsilon, const Values& x, const Values& scale,
                           const Values& dy);

Values LossRows(LossKind kind, int64_t rows, int64_t width, const Values& x,
                const Values& labels);
// The gradient of the mean of the rows' losses.
Values LossBackward(LossKind kind, int64_t rows, int64_t width, const Values& x,
                    const Values& labels);

// A RowLists on the host.
struct Lists {
  std::vector<int32_t> offsets = {0};
  std::vector<int32_t> index;
  Values weights = {};  // empty: every weight is 1

  int64_t count() const { return static_cast<int64_t>(offsets.size()) - 1; }
};
Values GatherSum(const Lists& lists, int64_t width, const Values& x);
// [rows, width]: the gradient of x, by scattering.
Values GatherSumBackward(const Lists& lists, int64_t rows, int64_t width,
                         const Values& dy);
struct MaxResult {
  Values y;
  std::vector<int32_t> chosen;
};
MaxResult GatherMax(const Lists& lists, int64_t width, const Values& x);
Values GatherMaxBackward(const std::vector<int32_t>& chosen, int64_t rows,
                         int64_t width, const Values& dy);

// One product of a pair of vectors per pair and sample.
Values PairDots(const VectorsShape& shape, const Values& x);
Values PairDotsBackward(const VectorsShape& shape, const Values& x,
                        const Values& dy);

}  // namespace weir::reference

#endif  // WORKER_COMPUTE_CHECK_REFERENCE_H_
