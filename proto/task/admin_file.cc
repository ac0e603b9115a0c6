#include "proto/task/admin_file.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/io/files.h"

namespace weir {

AdminFile::AdminFile(const std::string& workdir, const AdminServer* admin) {
  if (workdir.empty() || admin == nullptr) {
    return;
  }
  const std::string path = JoinPath(workdir, kAdminFileName);
  const absl::Status written = Files::Real()->WriteAtomically(
      path, absl::StrCat(admin->address(), "\n"));
  if (written.ok()) {
    path_ = path;
  } else {
    LOG_WARN("weir page will not find the admin port: {}",
             std::string(written.message()));
  }
}

AdminFile::~AdminFile() {
  if (!path_.empty()) {
    unlink(path_.c_str());
  }
}

}  // namespace weir
