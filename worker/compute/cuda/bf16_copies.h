// Float32 tensors as bfloat16, rounded once however many products read them.
//
// Place: CudaBackend in bf16: the input of a layer is multiplied twice
// (forward, and for the kernel's gradient), so are its kernel and its output's
// gradient. The backend tells of every write.
//
// Invariants
//   I1. Of() returns the rounding of what the queue has written so far.
// Threads: compatible.
// Errors: those of AllocateDevice.
// Cost: half the float's memory, kept until Forget; a look at every copy per
//   write (a model has some dozens).
#ifndef WORKER_COMPUTE_CUDA_BF16_COPIES_H_
#define WORKER_COMPUTE_CUDA_BF16_COPIES_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/compute/cuda/device_memory.h"
#include "worker/compute/cuda/kernels.h"

namespace weir::cuda {

class Bf16Copies {
 public:
  // Enqueues the rounding unless it is there.
  absl::StatusOr<const Bf16*> Of(cudaStream_t stream, const float* x,
                                 int64_t count);
  void OnWrite(const float* x, int64_t count);
  void OnWriteAll();
  // The range is released.
  void Forget(const float* x, int64_t count);
  int64_t bytes() const;

 private:
  struct Copy {
    const float* x;
    int64_t count = 0;  // the largest asked for
    int64_t valid = 0;  // elements from x on that are as the queue wrote them
    std::unique_ptr<DeviceScratch> memory = std::make_unique<DeviceScratch>();

    bool Overlaps(const float* other, int64_t other_count) const {
      return x < other + other_count && other < x + count;
    }
  };

  std::vector<Copy> copies_;
};

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_BF16_COPIES_H_
