// Makes a compute backend by name.
//
// Threads: safe.
#ifndef WORKER_COMPUTE_FACTORY_H_
#define WORKER_COMPUTE_FACTORY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/compute/backend.h"

namespace weir {

struct BackendOptions {
  std::string name = "cpu";
  // Of one backend, in 1..kThreadsMax. The bits of results depend on it, so it
  // comes from the job and never from the machine.
  int threads = 1;

  static constexpr int kThreadsMax = 1024;  // more is a slip of the pen
  absl::Status Validate() const;
};

// Errors: INVALID_ARGUMENT  names the option that is out of range.
//         NOT_FOUND         no backend of that name in this build.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(
    const BackendOptions& options);

}  // namespace weir

#endif  // WORKER_COMPUTE_FACTORY_H_
