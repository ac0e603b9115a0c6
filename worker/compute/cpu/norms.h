// The CPU backend's normalisations, as plain loops.
//
// Place: as loops.h, whose invariant I1 holds here too. The contracts are in
// worker/compute/backend.h.
// Threads: safe; no state.
#ifndef WORKER_COMPUTE_CPU_NORMS_H_
#define WORKER_COMPUTE_CPU_NORMS_H_

#include <cstdint>

namespace weir::loops {

void LayerNormForward(int64_t rows, int64_t width, float epsilon,
                      const float* x, const float* scale, const float* offset,
                      float* y, float* mean, float* rstd);
void LayerNormBackward(int64_t rows, int64_t width, const float* x,
                       const float* scale, const float* mean, const float* rstd,
                       const float* dy, float* dx, float* dscale,
                       float* doffset);

void BatchNormForward(int64_t rows, int64_t channels, float epsilon,
                      const float* x, const float* scale, const float* offset,
                      float* y, float* mean, float* rstd, float* variance);
void BatchNormBackward(int64_t rows, int64_t channels, const float* x,
                       const float* scale, const float* mean, const float* rstd,
                       const float* dy, float* dx, float* dscale,
                       float* doffset);
void BatchNormInference(int64_t rows, int64_t channels, float epsilon,
                        const float* x, const float* scale, const float* offset,
                        const float* mean, const float* variance, float* y);

}  // namespace weir::loops

#endif  // WORKER_COMPUTE_CPU_NORMS_H_
