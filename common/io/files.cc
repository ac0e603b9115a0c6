#include "common/io/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/exhausted.h"
#include "common/base/failpoint.h"
#include "common/base/identity.h"
#include "common/base/status.h"
#include "common/io/file_lock.h"

namespace weir {
namespace {

// Linux's read() and write() move at most 2 GiB at a time anyway.
constexpr size_t kMaxTransferBytes = size_t{1} << 30;

// What is made here is for this user alone.
constexpr mode_t kFileMode = 0600;
constexpr mode_t kDirectoryMode = 0700;

// open() that survives signals.
int OpenRetrying(const std::string& path, int flags) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, kFileMode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

class RealReader : public FileReader {
 public:
  RealReader(std::string path, int fd, int64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}
  ~RealReader() override { ::close(fd_); }

  int64_t size() const override { return size_; }
  const std::string& path() const override { return path_; }

  absl::Status ReadAt(int64_t offset, void* data, size_t bytes) override {
    char* to = static_cast<char*>(data);
    size_t done = 0;
    while (done < bytes) {
      const ssize_t n =
          ::pread(fd_, to + done, std::min(bytes - done, kMaxTransferBytes),
                  offset + static_cast<int64_t>(done));
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n < 0) {
        return FileError(errno, "read", path_);
      }
      if (n == 0) {
        return absl::DataLossError(absl::StrCat(
            path_, ": ends at byte ", offset + static_cast<int64_t>(done),
            "; bytes ", offset, " to ", offset + static_cast<int64_t>(bytes),
            " were asked for"));
      }
      done += static_cast<size_t>(n);
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const int fd_;
  const int64_t size_;
};

class RealWriter : public FileWriter {
 public:
  RealWriter(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~RealWriter() override {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }

  absl::Status Append(const void* data, size_t bytes) override {
    const char* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::write(fd_, from, std::min(bytes, kMaxTransferBytes));
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n < 0) {
        return FileError(errno, "write", path_);
      }
      from += n;
      bytes -= static_cast<size_t>(n);
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    if (::fsync(fd_) != 0) {
      return FileError(errno, "fsync", path_);
    }
    return absl::OkStatus();
  }

  absl::Status Close() override {
    // Not repeated after EINTR: Linux has released the descriptor by then.
    const int fd = std::exchange(fd_, -1);
    if (fd >= 0 && ::close(fd) != 0 && errno != EINTR) {
      return FileError(errno, "close", path_);
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  int fd_;
};

class RealFiles : public Files {
 public:
  absl::StatusOr<std::unique_ptr<FileReader>> Open(
      const std::string& path) override {
    // To open a pipe without a writer would block; other files do not know of
    // O_NONBLOCK.
    const int fd = OpenRetrying(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0) {
      return FileError(errno, "open", path);
    }
    // open() takes a directory for reading; only the first read would fail. A
    // pipe or a device has no size, and may have no end.
    struct stat info;
    int error = 0;
    if (::fstat(fd, &info) != 0) {
      error = errno;  // close() may change it
    } else if (S_ISDIR(info.st_mode)) {
      error = EISDIR;
    }
    if (error != 0 || !S_ISREG(info.st_mode)) {
      ::close(fd);
      if (error == 0) {
        return Invalid("cannot open ", path, ": it is not a regular file");
      }
      return FileError(error, "open", path);
    }
    return std::make_unique<RealReader>(path, fd, info.st_size);
  }

  absl::StatusOr<std::unique_ptr<FileWriter>> Create(
      const std::string& path) override {
    return OpenWriter(path, O_TRUNC);
  }

  absl::StatusOr<std::unique_ptr<FileWriter>> CreateNew(
      const std::string& path) override {
    return OpenWriter(path, O_EXCL | O_NOFOLLOW);
  }

  absl::StatusOr<std::unique_ptr<FileWriter>> OpenAppend(
      const std::string& path) override {
    return OpenWriter(path, O_APPEND);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) {
      const int error = errno;  // StrCat allocates, which may change it
      return FileError(error, absl::StrCat("rename ", from, " to"), to);
    }
    return absl::OkStatus();
  }

  absl::Status RenameNew(const std::string& from,
                         const std::string& to) override {
    // A link never replaces a name, on no file system.
    if (::link(from.c_str(), to.c_str()) != 0) {
      const int error = errno;
      return FileError(error, absl::StrCat("link ", from, " to"), to);
    }
    return Remove(from);
  }

  absl::Status Remove(const std::string& path) override {
    if (std::remove(path.c_str()) != 0) {
      return FileError(errno, "remove", path);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> List(
      const std::string& directory) override {
    DIR* const dir = ::opendir(directory.c_str());
    if (dir == nullptr) {
      return FileError(errno, "list", directory);
    }
    // At the end and on an error readdir returns the same; errno tells them
    // apart, so it is cleared before each call.
    std::vector<std::string> names;
    errno = 0;
    // glibc's readdir is safe on distinct streams.
    while (const dirent* entry = ::readdir(dir)) {  // NOLINT
      const std::string name = entry->d_name;
      if (name != "." && name != "..") {
        names.push_back(name);
      }
      errno = 0;
    }
    const int error = errno;
    ::closedir(dir);
    if (error != 0) {
      return FileError(error, "list", directory);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status MakeDirectories(const std::string& path) override {
    for (size_t end = 1; end <= path.size(); ++end) {
      if (end < path.size() && path[end] != '/') {
        continue;
      }
      // Another process may make the same directories at the same time.
      const std::string parent = path.substr(0, end);
      if (::mkdir(parent.c_str(), kDirectoryMode) != 0 && errno != EEXIST) {
        return FileError(errno, "make directory", parent);
      }
    }
    // EEXIST may also mean that a file has the name.
    WEIR_ASSIGN_OR_RETURN(const FileInfo info, Stat(path));
    if (!info.is_directory) {
      return FileError(ENOTDIR, "make directory", path);
    }
    return absl::OkStatus();
  }

  absl::Status MakeDirectory(const std::string& path) override {
    if (::mkdir(path.c_str(), kDirectoryMode) != 0) {
      return FileError(errno, "make directory", path);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<FileInfo> Stat(const std::string& path) override {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) {
      return FileError(errno, "stat", path);
    }
    return FileInfo{info.st_size, S_ISDIR(info.st_mode)};
  }

  absl::Status SyncDirectory(const std::string& path) override {
    const int fd = OpenRetrying(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0) {
      return FileError(errno, "open directory", path);
    }
    int error = 0;
    if (::fsync(fd) != 0) {
      error = errno;  // close() may change it
    }
    ::close(fd);
    if (error != 0) {
      return FileError(error, "fsync directory", path);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<HeldLock>> TryLock(
      const std::string& path, const std::string& who) override {
    return LockFile(path, who);
  }

 private:
  static absl::StatusOr<std::unique_ptr<FileWriter>> OpenWriter(
      const std::string& path, int flags) {
    const int fd = OpenRetrying(path, O_WRONLY | O_CREAT | flags);
    if (fd < 0) {
      return FileError(errno, "create", path);
    }
    return std::make_unique<RealWriter>(path, fd);
  }
};

// By what the caller can do about it: wait for room or for the device, or name
// another path.
absl::StatusCode CodeFor(int error_number) {
  switch (error_number) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::StatusCode::kResourceExhausted;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
    case EISDIR:
    case ENOTDIR:
    case ENOTEMPTY:
    case ENAMETOOLONG:
    case ELOOP:
    case EXDEV:
    case EINVAL:
      return absl::StatusCode::kInvalidArgument;
    // A disk that fails, a share whose server is away or was started again.
    case EIO:
    case ESTALE:
    case ETIMEDOUT:
    case EREMOTEIO:
    case ENOTCONN:
    case ECONNREFUSED:
    case ECONNRESET:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case EAGAIN:
    case EBUSY:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

// Writes beside the file, and gives it its name at the end. I1: nobody sees the
// temporary file, and `path` changes by one rename, which is atomic. The
// contents are synced before it: a rename that survives a power loss without
// them would leave an empty file.
class WriterBeside : public ObjectWriter {
 public:
  WriterBeside(Files* files, std::string path)
      : files_(files),
        path_(std::move(path)),
        temporary_(TemporaryPath(path_)) {}
  ~WriterBeside() override {
    // The writer is closed first: some network file systems keep a file that is
    // removed while it is open under another name.
    writer_.reset();
    if (!temporary_.empty()) {
      files_->Remove(temporary_).IgnoreError();
    }
  }

  absl::Status Begin() {
    WEIR_ASSIGN_OR_RETURN(writer_, files_->CreateNew(temporary_));
    return absl::OkStatus();
  }
  absl::Status Append(const void* data, size_t bytes) override {
    return writer_->Append(data, bytes);
  }
  absl::Status Finish() override {
    WEIR_RETURN_IF_ERROR(writer_->Sync());
    WEIR_RETURN_IF_ERROR(writer_->Close());
    WEIR_RETURN_IF_ERROR(files_->Publish(temporary_, path_));
    temporary_.clear();
    return absl::OkStatus();
  }
  // The same for a file that is not there yet.
  absl::Status FinishNew() {
    WEIR_RETURN_IF_ERROR(writer_->Sync());
    WEIR_RETURN_IF_ERROR(writer_->Close());
    WEIR_RETURN_IF_ERROR(files_->RenameNew(temporary_, path_));
    temporary_.clear();
    return files_->SyncDirectory(DirectoryOf(path_));
  }

 private:
  Files* const files_;
  const std::string path_;
  std::string temporary_;  // "": it has its name
  std::unique_ptr<FileWriter> writer_;
};

}  // namespace

Files* Files::Real() {
  static RealFiles* const files = new RealFiles();
  return files;
}

absl::StatusOr<std::string> Files::ReadAll(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<FileReader> reader, Open(path));
  std::string contents;
  // A file may be longer than the memory, without a byte on the disk.
  const absl::Status fits = OrExhausted([&] {
    contents.resize(static_cast<size_t>(reader->size()));
    return absl::OkStatus();
  });
  WEIR_RETURN_IF_ERROR(Annotate(fits, path));
  WEIR_RETURN_IF_ERROR(reader->ReadAt(0, contents.data(), contents.size()));
  return contents;
}

absl::Status Files::WriteAtomically(const std::string& path,
                                    absl::string_view contents) {
  WEIR_ASSIGN_OR_RETURN(
      const std::unique_ptr<ObjectWriter> writer,
      BeginWrite(path, static_cast<int64_t>(contents.size())));
  WEIR_RETURN_IF_ERROR(writer->Append(contents.data(), contents.size()));
  return writer->Finish();
}

absl::Status Files::WriteNew(const std::string& path,
                             absl::string_view contents) {
  WriterBeside writer(this, path);
  WEIR_RETURN_IF_ERROR(writer.Begin());
  WEIR_RETURN_IF_ERROR(writer.Append(contents.data(), contents.size()));
  const absl::Status status = writer.FinishNew();
  if (!absl::IsAlreadyExists(status)) {
    return status;
  }
  WEIR_ASSIGN_OR_RETURN(const std::string there, ReadAll(path));
  return there == contents ? absl::OkStatus() : status;
}

absl::StatusOr<std::unique_ptr<ObjectWriter>> Files::BeginWrite(
    const std::string& path, int64_t /*bytes_expected*/) {
  auto writer = std::make_unique<WriterBeside>(this, path);
  WEIR_RETURN_IF_ERROR(writer->Begin());
  return std::unique_ptr<ObjectWriter>(std::move(writer));
}

absl::Status Files::Append(const std::string& path,
                           absl::string_view contents) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<FileWriter> writer,
                        OpenAppend(path));
  WEIR_RETURN_IF_ERROR(writer->Append(contents.data(), contents.size()));
  return writer->Close();
}

absl::Status Files::DropUnfinished(const std::string& directory) {
  const auto names = List(directory);
  if (absl::IsNotFound(names.status())) {
    return absl::OkStatus();
  }
  WEIR_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    if (IsTemporaryPath(name)) {
      const absl::Status removed = Remove(JoinPath(directory, name));
      if (!absl::IsNotFound(removed)) {
        WEIR_RETURN_IF_ERROR(removed);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Files::Publish(const std::string& temporary,
                            const std::string& path) {
  Failpoint("files.before_rename");
  WEIR_RETURN_IF_ERROR(Rename(temporary, path));
  Failpoint("files.after_rename");
  // I1: the rename itself survives power loss only with its directory.
  return SyncDirectory(DirectoryOf(path));
}

std::string TemporaryPath(const std::string& path) {
  return absl::StrCat(path, ".tmp.", RandomHex(16));
}

bool IsTemporaryPath(absl::string_view path) {
  return absl::StrContains(path, ".tmp.");
}

std::string DirectoryOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) {
    return ".";
  }
  return std::string(path.substr(0, std::max<size_t>(slash, 1)));
}

std::string JoinPath(absl::string_view directory, absl::string_view name) {
  if (directory.empty() || absl::StartsWith(name, "/")) {
    return std::string(name);
  }
  if (absl::EndsWith(directory, "/")) {
    return absl::StrCat(directory, name);
  }
  return absl::StrCat(directory, "/", name);
}

absl::Status FileError(int error_number, absl::string_view what,
                       absl::string_view path) {
  // I2: every error of a file is made here.
  return absl::Status(
      CodeFor(error_number),
      absl::StrCat("cannot ", what, " ", path, ": ",
                   std::generic_category().message(error_number)));
}

}  // namespace weir
