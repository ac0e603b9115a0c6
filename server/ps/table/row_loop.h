// The one loop over rows that every row optimizer runs, for each SIMD level.
//
// Terms
//   kernel   a struct with a method that makes the step of row i, marked
//            WEIR_KERNEL:
//              void Row(int i, float* row, const UnalignedFloat* g,
//                       int64_t dim) const
//
// Invariants: those of common/math/simd.h.
#ifndef SERVER_PS_TABLE_ROW_LOOP_H_
#define SERVER_PS_TABLE_ROW_LOOP_H_

#include <cstdint>

#include "common/math/simd.h"
#include "server/ps/optimizer/apply_loop.h"
#include "server/ps/table/row_optimizer.h"

namespace weir {

template <class Kernel>
struct RowBody {
  static WEIR_KERNEL void Run(Kernel kernel, RowBatch batch) {
    for (int i = 0; i < batch.count; ++i) {
      kernel.Row(i, batch.rows[i],
                 reinterpret_cast<const UnalignedFloat*>(batch.gradients[i]),
                 batch.dim);
    }
  }
};

template <class Kernel>
void ApplyRows(const Kernel& kernel, const RowBatch& batch) {
  SimdDispatch<RowBody<Kernel>>(kernel, batch);
}

// A kernel of server/ps/optimizer/step_kernels.h, column by column.
template <class StepKernel>
struct ElementwiseRow {
  StepKernel kernel;

  WEIR_KERNEL void Row(int, float* row, const UnalignedFloat* g,
                       int64_t dim) const {
    Columns(row, row + dim, row + 2 * dim, g, dim);
  }

  WEIR_KERNEL void Columns(float* __restrict w, float* __restrict a,
                           float* __restrict b,
                           const UnalignedFloat* __restrict g,
                           int64_t dim) const {
    for (int64_t i = 0; i < dim; ++i) {
      ApplyBody<StepKernel>::StepAt(kernel, i, w, a, b, nullptr, g);
    }
  }
};

}  // namespace weir

#endif  // SERVER_PS_TABLE_ROW_LOOP_H_
