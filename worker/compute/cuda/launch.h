// Starts a kernel, on the GPU or on the emulator that tests compile against.
//
// Place: every .cu file of this folder launches through Launch, so that the
// same source is compiled by nvcc for the plug-in and by gcc or clang for the
// contract suite of machines without a GPU (tests/worker/compute/cuda).
#ifndef WORKER_COMPUTE_CUDA_LAUNCH_H_
#define WORKER_COMPUTE_CUDA_LAUNCH_H_

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include "weir_cuda_emulator.h"
#endif

namespace weir::cuda {

// Errors come from cudaGetLastError().
template <class... Params, class... Args>
void Launch(cudaStream_t stream, dim3 grid, dim3 block,
            void (*kernel)(Params...), Args... args) {
#ifdef __CUDACC__
  kernel<<<grid, block, 0, stream>>>(args...);
#else
  weir_emulator::Launch(stream, grid, block, kernel,
                        static_cast<Params>(args)...);
#endif
}

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_LAUNCH_H_
