#include "proto/security/key_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/identity.h"
#include "common/base/status.h"
#include "common/io/file_descriptor.h"
#include "common/io/files.h"

namespace weir {
namespace {

absl::Status CannotWrite(const std::string& path) {
  char text[128];
  return Invalid(
      path, ": cannot be written: ", strerror_r(errno, text, sizeof(text)));
}

}  // namespace

absl::Status WriteKeyFile(const std::string& path, absl::string_view text) {
  // A name that nobody can guess, and neither a link nor a file is there.
  const std::string temporary = absl::StrCat(path, ".", RandomHex(16), ".tmp");
  const FileDescriptor file(
      open(temporary.c_str(),
           O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) {
    return CannotWrite(path);
  }
  while (!text.empty()) {
    const ssize_t bytes = write(file.get(), text.data(), text.size());
    if (bytes < 0 && errno != EINTR) {
      const absl::Status status = CannotWrite(path);
      unlink(temporary.c_str());
      return status;
    }
    text.remove_prefix(bytes < 0 ? 0 : static_cast<size_t>(bytes));
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    const absl::Status status = CannotWrite(path);
    unlink(temporary.c_str());
    return status;
  }
  return absl::OkStatus();
}

absl::Status WriteTaskCertificate(const std::string& directory,
                                  const TaskCertificate& task) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return CannotWrite(directory);
  }
  // The certificate last: who watches the files takes up a whole set.
  WEIR_RETURN_IF_ERROR(
      WriteKeyFile(JoinPath(directory, "ca.crt"), task.authority));
  WEIR_RETURN_IF_ERROR(WriteKeyFile(JoinPath(directory, "tls.key"), task.key));
  return WriteKeyFile(JoinPath(directory, "tls.crt"), task.certificate);
}

}  // namespace weir
