// Makes the compute backends of devices.
//
// Place: workers, evaluators and the command line get their backend here. The
// GPU's is in a plug-in, so that a machine without CUDA needs none of it.
//
// Threads: safe.
#ifndef WORKER_COMPUTE_FACTORY_H_
#define WORKER_COMPUTE_FACTORY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/compute/backend.h"

namespace weir {

struct BackendOptions {
  // "cpu", "cuda" (the same as "cuda:0"), "cuda:N", or "auto": a GPU where one
  // answers, else the CPU, and the log says why. "cuda:0,1,3" and "cuda:all"
  // are several GPUs for one worker (worker/model/replicas.h).
  std::string device = "cpu";
  // "auto" takes cuda:(auto_index mod devices): tasks of one host spread out.
  int auto_index = 0;
  // Of the CPU backend, in 1..kThreadsMax. The bits of results depend on it, so
  // it comes from the job and never from the machine.
  int threads = 1;
  Precision precision = Precision::kFp32;  // of GPUs
  // The same bits in every run on one kind of GPU. A CPU's always are.
  bool deterministic = false;
  // cuDNN's file, of GPUs; empty: libcudnn.so.9 where the system's linker finds
  // one; "none": do without. Weir's own kernels do what it does not.
  std::string cudnn_library;
  // The plug-in's file; empty: libweir_cuda.so beside this executable, in
  // ../lib of it, or where the build puts it.
  std::string plugin_path;

  static constexpr int kThreadsMax = 1024;  // more is a slip of the pen
  absl::Status Validate() const;
};

// One for each device of the list, in its order.
// Errors: INVALID_ARGUMENT  names the option that is out of range, or the
//                           plug-in that does not fit this build.
//         NOT_FOUND         no plug-in, no driver, no such device.
//         others            as the device says.
absl::StatusOr<std::vector<std::unique_ptr<Backend>>> CreateBackends(
    const BackendOptions& options);

// For what computes on one device: the first of the list.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(
    const BackendOptions& options);

}  // namespace weir

#endif  // WORKER_COMPUTE_FACTORY_H_
