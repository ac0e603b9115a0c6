// The directory that --tls_dir of a task takes.
//
// Threads: safe.
// Errors: as common/io/files.h; the message names the path.
#ifndef PROTO_SECURITY_KEY_FILES_H_
#define PROTO_SECURITY_KEY_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "proto/security/certificates.h"

namespace weir {

// Writes tls.crt, tls.key and ca.crt into `directory`, which is made unless it
// is there. As all that Weir writes they are for this user alone, and whoever
// reads one meanwhile finds the old text or the new one.
absl::Status WriteTaskCertificate(const std::string& directory,
                                  const TaskCertificate& task);

}  // namespace weir

#endif  // PROTO_SECURITY_KEY_FILES_H_
