// The CPU backend's plain loops: everything but products and convolutions.
//
// Place: CpuBackend forwards to these; the contracts (shapes, null arguments,
// what may overlap) are in worker/compute/backend.h.
//
// Invariants
//   I1. Sums run in a fixed order, lane by lane, so their bits depend neither
//       on addresses nor on the instruction set. Long sums are carried in
//       double.
// Threads: safe; no state.
#ifndef WORKER_COMPUTE_CPU_LOOPS_H_
#define WORKER_COMPUTE_CPU_LOOPS_H_

#include <cstdint>

#include "worker/compute/backend.h"

namespace weir::loops {

void SumRows(int64_t rows, int64_t width, const float* x, float* sums);

void PoolForward(PoolKind kind, const PoolShape& shape, const float* x,
                 float* y);
void PoolBackward(PoolKind kind, const PoolShape& shape, const float* x,
                  const float* dy, float* dx);

void ActivationForward(ActivationKind kind, int64_t count, const float* x,
                       float* y);
void ActivationBackward(ActivationKind kind, int64_t count, const float* y,
                        const float* dy, float* dx);

void Dropout(uint64_t key, float rate, int64_t count, const float* x, float* y);

void Add(int64_t count, const float* a, const float* b, float* y);
// y = a * b + c; c may be null.
void MultiplyAdd(int64_t count, const float* a, const float* b, const float* c,
                 float* y);
// y = a * x + b * y.
void ScaleAdd(int64_t count, float a, const float* x, float b, float* y);
void CopyColumns(int64_t rows, int64_t width, const float* x, int64_t x_stride,
                 float* y, int64_t y_stride);
void Transpose(int64_t batch, int64_t rows, int64_t columns, const float* x,
               float* y);

void SoftmaxCrossEntropy(int64_t rows, int64_t width, const float* x,
                         const float* labels, float* row_loss,
                         float* row_correct, float* dx);
void SigmoidCrossEntropy(int64_t rows, const float* x, const float* labels,
                         float* row_loss, float* row_correct, float* dx);
void MeanSquaredError(int64_t rows, int64_t width, const float* x,
                      const float* labels, float* row_loss, float* row_correct,
                      float* dx);

}  // namespace weir::loops

#endif  // WORKER_COMPUTE_CPU_LOOPS_H_
