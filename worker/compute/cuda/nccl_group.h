// Sums over the devices of a process by NCCL.
//
// Place: CudaBackend::ReduceFromPeers, for each list of devices that it meets.
//
// Terms
//   clique  one NCCL communicator for each device of the list. The first
//           device, NCCL's rank 0, is the root, which gets the sum.
//
// Invariants
//   I1. NCCL promises no order of additions, so two runs may differ in bits.
//       Jobs that ask for the same bits always must not use this class.
//   I2. A sum is enqueued on all devices or, after an error, ended on all: no
//       stream waits for a device that does not come.
// Threads: compatible. All groups of a process are used by one thread.
// Owns/borrows: owns the communicators; borrows streams, which may end first.
// Errors: INTERNAL  "<NCCL's function>: <NCCL's text>".
// Cost: the communicators take NCCL's buffers on every device and a second or
//   so to make; Reduce allocates nothing of its own.
#ifndef WORKER_COMPUTE_CUDA_NCCL_GROUP_H_
#define WORKER_COMPUTE_CUDA_NCCL_GROUP_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/compute/cuda/nccl_api.h"

namespace weir::cuda {

class NcclGroup {
 public:
  // A device's term of the sum, and the stream on which it is added.
  struct Part {
    float* x = nullptr;
    cudaStream_t stream = nullptr;
  };

  // REQUIRES: `devices` has two or more, and no device twice.
  static absl::StatusOr<std::unique_ptr<NcclGroup>> Create(
      const NcclApi& api, std::vector<int> devices);
  // Waits for what was enqueued.
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  // Enqueues parts[0].x = the sum of all x, `count` floats each; parts are in
  // the order of the devices. The other x stay as they are. After an error
  // every later call returns that error.
  absl::Status Reduce(int64_t count, std::span<const Part> parts);

 private:
  NcclGroup(const NcclApi& api, std::vector<int> devices);

  absl::Status Check(int result, const char* function) const;
  absl::Status Enqueue(int64_t count, std::span<const Part> parts);

  const NcclApi api_;
  const std::vector<int> devices_;
  std::vector<NcclComm*> comms_;  // by rank; empty after an error
  absl::Status status_;
};

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_NCCL_GROUP_H_
