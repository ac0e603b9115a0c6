// Weir's GPU kernels, for all that cuBLAS does not compute. They are host
// functions that enqueue.
//
// Place: CudaBackend calls them; the contracts (shapes, null arguments, what
// may overlap, what NaN does) are in worker/compute/backend.h.
//
// Terms
//   partials  scratch of PartialElements(rows, width) floats for sums over
//             rows.
//
// Invariants
//   I1. Kernels use no atomics. Every sum has one order, which depends on
//       shapes alone.
//   I2. Kernels read and write 16 bytes at a time where every pointer and
//       extent allows it.
// Threads: one thread at a time for each stream.
// Errors: cudaGetLastError() after the call.
#ifndef WORKER_COMPUTE_CUDA_KERNELS_H_
#define WORKER_COMPUTE_CUDA_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/compute/shapes.h"

namespace weir::cuda {

// A bfloat16's bits.
using Bf16 = uint16_t;

// ------------------------------------------------------------ elementwise

void Activate(cudaStream_t stream, ActivationKind kind, int64_t count,
              const float* x, float* y);
void ActivateBackward(cudaStream_t stream, ActivationKind kind, int64_t count,
                      const float* y, const float* dy, float* dx);
// The key is keys[key_index], read when the kernel runs.
void Dropout(cudaStream_t stream, const uint64_t* keys, int key_index,
             float rate, int64_t count, const float* x, float* y);
void Add(cudaStream_t stream, int64_t count, const float* a, const float* b,
         float* y);
// y = a * b + c; c may be null.
void MultiplyAdd(cudaStream_t stream, int64_t count, const float* a,
                 const float* b, const float* c, float* y);
// x = a * x.
void Scale(cudaStream_t stream, int64_t count, float a, float* x);
// y = a * x + b * y.
void ScaleAdd(cudaStream_t stream, int64_t count, float a, const float* x,
              float b, float* y);
// Rounds to nearest, ties to even; NaN stays NaN.
void ToBf16(cudaStream_t stream, int64_t count, const float* x, Bf16* y);

// -------------------------------------------------------------- reductions

int64_t PartialElements(int64_t rows, int64_t width);

void SumRows(cudaStream_t stream, int64_t rows, int64_t width, const float* x,
             float* sums, float* partials);
// y [rows, width] += bias [width].
void AddBias(cudaStream_t stream, int64_t rows, int64_t width,
             const float* bias, float* y);
void LayerNormForward(cudaStream_t stream, int64_t rows, int64_t width,
                      float epsilon, const float* x, const float* scale,
                      const float* offset, float* y, float* mean, float* rstd);
void LayerNormBackward(cudaStream_t stream, int64_t rows, int64_t width,
                       const float* x, const float* scale, const float* mean,
                       const float* rstd, const float* dy, float* dx,
                       float* dscale, float* doffset, float* partials);
void BatchNormForward(cudaStream_t stream, int64_t rows, int64_t channels,
                      float epsilon, const float* x, const float* scale,
                      const float* offset, float* y, float* mean, float* rstd,
                      float* variance, float* partials);
void BatchNormBackward(cudaStream_t stream, int64_t rows, int64_t channels,
                       const float* x, const float* scale, const float* mean,
                       const float* rstd, const float* dy, float* dx,
                       float* dscale, float* doffset, float* partials);
void BatchNormInference(cudaStream_t stream, int64_t rows, int64_t channels,
                        float epsilon, const float* x, const float* scale,
                        const float* offset, const float* mean,
                        const float* variance, float* y);

// ------------------------------------------------------------------ losses

void Loss(cudaStream_t stream, LossKind kind, int64_t rows, int64_t width,
          const float* x, const float* labels, float* row_loss,
          float* row_correct, float* dx);

// ------------------------------------------------------------------ images

void PoolForward(cudaStream_t stream, PoolKind kind, const PoolShape& shape,
                 const float* x, float* y);
void PoolBackward(cudaStream_t stream, PoolKind kind, const PoolShape& shape,
                  const float* x, const float* dy, float* dx);
// y [batch, columns, rows] from x [batch, rows, columns].
void Transpose(cudaStream_t stream, int64_t batch, int64_t rows,
               int64_t columns, const float* x, float* y);
void TransposeToBf16(cudaStream_t stream, int64_t batch, int64_t rows,
                     int64_t columns, const float* x, Bf16* y);
// columns [batch * out_height * out_width, kernel * kernel * channels] from x,
// zero where the window lies in the padding.
void ImageToColumns(cudaStream_t stream, const Conv2dShape& shape,
                    const float* x, float* columns);
void ImageToColumnsBf16(cudaStream_t stream, const Conv2dShape& shape,
                        const float* x, Bf16* columns);
// dx = the sum, for every pixel, of its places in columns.
void ColumnsToImage(cudaStream_t stream, const Conv2dShape& shape,
                    const float* columns, float* dx);

// ------------------------------------------------------------------ sparse

void GatherSum(cudaStream_t stream, const RowLists& lists, int64_t width,
               const float* x, bool add, float* y);
void GatherMax(cudaStream_t stream, const RowLists& lists, int64_t width,
               const float* x, float* y, int32_t* chosen);
void GatherChosen(cudaStream_t stream, const RowLists& lists, int64_t width,
                  const float* x, const int32_t* chosen, bool add, float* y);
void PairSumForward(cudaStream_t stream, const VectorsShape& shape,
                    const float* x, float* y);
void PairSumBackward(cudaStream_t stream, const VectorsShape& shape,
                     const float* x, const float* dy, float* dx);
void PairDotsForward(cudaStream_t stream, const VectorsShape& shape,
                     const float* x, float* y);
void PairDotsBackward(cudaStream_t stream, const VectorsShape& shape,
                      const float* x, const float* dy, float* dx);

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_KERNELS_H_
