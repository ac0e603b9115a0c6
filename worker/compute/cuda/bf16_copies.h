// Float32 tensors as bfloat16, rounded once however many products read them.
//
// Place: CudaBackend has one in bf16. The input of a layer is multiplied twice,
// in the forward pass and for the kernel's gradient; so are the kernel and the
// gradient of the output. The backend reports every write.
//
// Invariants
//   I1. Of() returns the rounding of what the queue has written so far.
// Threads: compatible.
// Errors: those of AllocateDevice.
// Cost: half of the floats' memory, kept until Forget. A write looks at every
//   copy, and a model has some dozens.
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
  // Returns `count` elements of x, rounded. Enqueues the rounding on `stream`
  // unless the copy is fresh. The pointer holds until more elements of the same
  // x are asked for, or Forget().
  absl::StatusOr<const Bf16*> Of(cudaStream_t stream, const float* x,
                                 int64_t count);
  // Makes the copies stale that overlap [x, x + count).
  void OnWrite(const float* x, int64_t count);
  // Makes all copies stale.
  void OnWriteAll();
  // Drops the copies that overlap [x, x + count), which is being released.
  void Forget(const float* x, int64_t count);
  int64_t bytes() const;

 private:
  struct Copy {
    const float* x;
    int64_t count = 0;  // the most elements that were asked for
    int64_t valid = 0;  // so many elements from x on are fresh
    std::unique_ptr<DeviceScratch> memory = std::make_unique<DeviceScratch>();

    bool Overlaps(const float* other, int64_t other_count) const {
      return x < other + other_count && other < x + count;
    }
  };

  std::vector<Copy> copies_;
};

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_BF16_COPIES_H_
