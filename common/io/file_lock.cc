#include "common/io/file_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "common/io/file_descriptor.h"
#include "common/io/files.h"

namespace weir {
namespace {

class HeldFile : public HeldLock {
 public:
  explicit HeldFile(FileDescriptor file) : file_(std::move(file)) {}

 private:
  const FileDescriptor file_;  // closing it ends the lock
};

// What the holder wrote, in one line.
std::string Holder(int file) {
  char text[512];
  const ssize_t bytes = pread(file, text, sizeof(text), 0);
  // -1: it cannot be read, and then has no name to show.
  std::string holder(text, static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  holder = holder.substr(0, holder.find('\n'));
  return holder.empty() ? "a process that has not said its name" : holder;
}

// True if `path` still names the open file. If somebody removed it, another
// process may hold the lock of a new file of this name.
bool IsAt(int file, const std::string& path) {
  struct stat opened = {};
  struct stat there = {};
  return fstat(file, &opened) == 0 && stat(path.c_str(), &there) == 0 &&
         opened.st_dev == there.st_dev && opened.st_ino == there.st_ino;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HeldLock>> LockFile(
    const std::string& path, const std::string& who,
    const std::function<int(int descriptor, int operation)>& lock) {
  FileDescriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid()) {
    return FileError(errno, "open", path);
  }
  if (lock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (error == EWOULDBLOCK || error == EINTR) {
      return absl::AlreadyExistsError(Holder(file.get()));
    }
    return absl::UnimplementedError(FileError(error, "lock", path).message());
  }
  if (!IsAt(file.get(), path)) {
    return absl::AlreadyExistsError(Holder(file.get()));
  }
  const std::string line = absl::StrCat(who, "\n");
  if (ftruncate(file.get(), 0) != 0 ||
      pwrite(file.get(), line.data(), line.size(), 0) < 0) {
    // Only the name is lost, for instance on a full disk.
    LOG_WARN("{}", std::string(FileError(errno, "write", path).message()));
  }
  return std::make_unique<HeldFile>(std::move(file));
}

}  // namespace weir
