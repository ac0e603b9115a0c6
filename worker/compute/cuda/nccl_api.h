// The few functions of NCCL 2 that Weir calls, as pointers that are found at
// run time.
//
// Place: NcclGroup calls them. Nothing links NCCL, so that Weir builds without
// it and computes on a machine without it.
//
// Invariants
//   I1. Prototypes and constants are those of NCCL 2.32.3's header;
//       tests/worker/compute/cuda/nccl_api_test.cc compares them where the
//       header is installed.
// Threads: LoadNccl is safe; for the functions see NCCL's manual.
#ifndef WORKER_COMPUTE_CUDA_NCCL_API_H_
#define WORKER_COMPUTE_CUDA_NCCL_API_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace weir::cuda {

struct NcclComm;  // NCCL's opaque communicator

// NCCL's enums are ints.
constexpr int kNcclMajor = 2;
constexpr int kNcclSuccess = 0;
constexpr int kNcclFloat = 7;
constexpr int kNcclSum = 0;

struct NcclApi {
  int (*get_version)(int* version) = nullptr;
  const char* (*get_error_string)(int result) = nullptr;
  // One communicator for each device; their ranks are the list's places.
  int (*init_all)(NcclComm** comms, int count, const int* devices) = nullptr;
  int (*destroy)(NcclComm* comm) = nullptr;
  // Destroys, and ends what still runs.
  int (*abort)(NcclComm* comm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  // On `root` y = the sum of all x, and x may be y. Elsewhere y may be null.
  int (*reduce)(const void* x, void* y, size_t count, int type, int operation,
                int root, NcclComm* comm, cudaStream_t stream) = nullptr;
};

inline constexpr char kNcclLibrary[] = "libnccl.so.2";
// Stands in the place of a library: do not use one.
inline constexpr char kNoNccl[] = "none";

// Makes "2.27.3" of 22703.
std::string NcclVersionText(int version);

// Opens `library`, which stays open.
// Errors: NOT_FOUND            it cannot be opened; says why.
//         FAILED_PRECONDITION  it is not NCCL 2.9 or newer; names the version
//                              or the function that it lacks.
absl::StatusOr<NcclApi> LoadNccl(const std::string& library);

}  // namespace weir::cuda

#endif  // WORKER_COMPUTE_CUDA_NCCL_API_H_
