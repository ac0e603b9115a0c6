// Weir's GPU kernels, for all that cuBLAS does not compute. They are host
// functions that enqueue.
//
// Place: Operations calls them; the contracts (shapes, null arguments, what may
// overlap, what NaN does) are in worker/compute/operations.h.
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

#include "worker/compute/operations.h"

namespace weir::cuda {

// A bfloat16's bits.
using Bf16 = uint16_t;

// -------------------------------------------------------------- operations

// Floats of the scratch for sums over the rows of a matrix.
int64_t PartialElements(int64_t rows, int64_t width);

void Enqueue(cudaStream_t stream, const op::ActivationForward& o);
void Enqueue(cudaStream_t stream, const op::ActivationBackward& o);
// The key is keys[o.key_index], read when the kernel runs.
void Enqueue(cudaStream_t stream, const op::Dropout& o, const uint64_t* keys);
void Enqueue(cudaStream_t stream, const op::Add& o);
void Enqueue(cudaStream_t stream, const op::MultiplyAdd& o);
void Enqueue(cudaStream_t stream, const op::SumRows& o, float* partials);
void Enqueue(cudaStream_t stream, const op::NormForward& o, float* partials);
void Enqueue(cudaStream_t stream, const op::NormBackward& o, float* partials);
void Enqueue(cudaStream_t stream, const op::NormInference& o);
void Enqueue(cudaStream_t stream, const op::Loss& o);
void Enqueue(cudaStream_t stream, const op::PoolForward& o);
// `places` has PoolPlacesBytes(o); it is not read where these are 0.
int64_t PoolPlacesBytes(const op::PoolBackward& o);
void Enqueue(cudaStream_t stream, const op::PoolBackward& o, uint8_t* places);
void Enqueue(cudaStream_t stream, const op::BytesToFloats& o);
void Enqueue(cudaStream_t stream, const op::Transpose& o);
void Enqueue(cudaStream_t stream, const op::GatherSum& o);
void Enqueue(cudaStream_t stream, const op::GatherMax& o);
void Enqueue(cudaStream_t stream, const op::GatherChosen& o);
void Enqueue(cudaStream_t stream, const op::PairForward& o);
void Enqueue(cudaStream_t stream, const op::PairBackward& o);

// ------------------------------------------------------- parts of operations

// x = a * x.
void Scale(cudaStream_t stream, int64_t count, float a, float* x);
// y = a * x + b * y.
void ScaleAdd(cudaStream_t stream, int64_t count, float a, const float* x,
              float b, float* y);
// Rounds to nearest, ties to even; NaN stays NaN.
void ToBf16(cudaStream_t stream, int64_t count, const float* x, Bf16* y);
// y [rows, width] = x, with bias [width] added to every row; it may be null.
void FromBf16(cudaStream_t stream, int64_t rows, int64_t width, const Bf16* x,
              const float* bias, float* y);
// y [rows, width] += bias [width].
void AddBias(cudaStream_t stream, int64_t rows, int64_t width,
             const float* bias, float* y);
// y [batch, columns, rows] from x [batch, rows, columns].
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

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_KERNELS_H_
