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
  // give one worker several GPUs (worker/model/replicas.h).
  std::string device = "cpu";
  // "auto" takes cuda:(auto_index mod devices), so that the tasks of one host
  // spread over its devices.
  int auto_index = 0;
  // Threads of the CPU backend, in 1..kThreadsMax. The bits of results depend
  // on the number, so it comes from the job and never from the machine.
  int threads = 1;
  // The type to which GPUs round the factors of products. A CPU ignores it.
  Precision precision = Precision::kFp32;
  // Asks GPUs of one kind for the same bits in every run, which may cost speed.
  // A CPU always gives the same bits.
  bool deterministic = false;
  // The file of cuDNN, which GPUs use for convolutions. Empty: libcudnn.so.9,
  // where the system's linker finds one. "none": without cuDNN. Weir's own
  // kernels compute what cuDNN does not.
  std::string cudnn_library;
  // The file of the plug-in. Empty: libweir_cuda.so beside this executable, in
  // ../lib beside it, or where the build puts it.
  std::string plugin_path;

  static constexpr int kThreadsMax = 1024;  // more is a slip of the pen
  absl::Status Validate() const;
};

// Makes one backend for each device of the list, in its order.
// Errors: INVALID_ARGUMENT  names the option that is out of range, or the
//                           plug-in that does not fit this build.
//         NOT_FOUND         no plug-in, no driver, no such device.
//         others            the device's own.
absl::StatusOr<std::vector<std::unique_ptr<Backend>>> CreateBackends(
    const BackendOptions& options);

// Makes the backend of the first device alone, for what computes on one device.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(
    const BackendOptions& options);

}  // namespace weir

#endif  // WORKER_COMPUTE_FACTORY_H_
