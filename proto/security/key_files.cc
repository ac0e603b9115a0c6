#include "proto/security/key_files.h"

#include "common/base/status.h"
#include "common/io/files.h"

namespace weir {

absl::Status WriteTaskCertificate(const std::string& directory,
                                  const TaskCertificate& task) {
  Files* const files = Files::Real();
  WEIR_RETURN_IF_ERROR(files->MakeDirectories(directory));
  // Each file is replaced as a whole, but not the three at one moment: a task
  // that reads them just then has a key and a certificate that do not fit, and
  // no new connections until it reads them again.
  WEIR_RETURN_IF_ERROR(
      files->WriteAtomically(JoinPath(directory, "ca.crt"), task.authority));
  WEIR_RETURN_IF_ERROR(
      files->WriteAtomically(JoinPath(directory, "tls.key"), task.key));
  return files->WriteAtomically(JoinPath(directory, "tls.crt"),
                                task.certificate);
}

}  // namespace weir
