// Files that hold keys: only this user may read them.
//
// Threads: safe.
// Errors: as common/io/files.h; the message names the path.
#ifndef PROTO_SECURITY_KEY_FILES_H_
#define PROTO_SECURITY_KEY_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/security/certificates.h"

namespace weir {

// Writes `text` to `path`, mode 0600. Whoever reads meanwhile finds the old
// text or the new one.
absl::Status WriteKeyFile(const std::string& path, absl::string_view text);

// Writes tls.crt, tls.key and ca.crt into `directory`, which is made with mode
// 0700 unless it is there.
absl::Status WriteTaskCertificate(const std::string& directory,
                                  const TaskCertificate& task);

}  // namespace weir

#endif  // PROTO_SECURITY_KEY_FILES_H_
