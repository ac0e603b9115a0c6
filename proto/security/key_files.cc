#include "proto/security/key_files.h"

#include "common/base/status.h"
#include "common/io/files.h"

namespace weir {

absl::Status WriteTaskCertificate(const std::string& directory,
                                  const TaskCertificate& task) {
  Files* const files = Files::Real();
  WEIR_RETURN_IF_ERROR(files->MakeDirectories(directory));
  // The certificate last: who watches the files takes up a whole set.
  WEIR_RETURN_IF_ERROR(
      files->WriteAtomically(JoinPath(directory, "ca.crt"), task.authority));
  WEIR_RETURN_IF_ERROR(
      files->WriteAtomically(JoinPath(directory, "tls.key"), task.key));
  return files->WriteAtomically(JoinPath(directory, "tls.crt"),
                                task.certificate);
}

}  // namespace weir
