// The CPU backend's operations on rows of tables, as plain loops: gathers over
// lists of rows, and interactions of vectors.
//
// Place: as loops.h, whose invariant I1 holds here too. The contracts are in
// worker/compute/backend.h.
// Threads: safe; no state.
#ifndef WORKER_COMPUTE_CPU_SPARSE_H_
#define WORKER_COMPUTE_CPU_SPARSE_H_

#include <cstdint>

#include "worker/compute/shapes.h"

namespace weir::loops {

void GatherSum(const RowLists& lists, int64_t width, const float* x, bool add,
               float* y);
void GatherMax(const RowLists& lists, int64_t width, const float* x, float* y,
               int32_t* chosen);
void GatherChosen(const RowLists& lists, int64_t width, const float* x,
                  const int32_t* chosen, bool add, float* y);

void PairSumForward(const VectorsShape& shape, const float* x, float* y);
void PairSumBackward(const VectorsShape& shape, const float* x, const float* dy,
                     float* dx);
void PairDotsForward(const VectorsShape& shape, const float* x, float* y);
void PairDotsBackward(const VectorsShape& shape, const float* x,
                      const float* dy, float* dx);

}  // namespace weir::loops

#endif  // WORKER_COMPUTE_CPU_SPARSE_H_
