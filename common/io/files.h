// Files as a constructor argument: every read, write and rename that Weir does
// goes through here, so that a test can make the k-th one fail.
//
// Place: checkpoints, manifests, exports, logs and data readers.
//
// Invariants
//   I1. WriteAtomically leaves the old contents or the new, whole, whatever
//       fails or whenever the process dies; after OK they survive power loss.
//   I2. Every error names the path, what was tried and the system's reason.
// Threads: Files is safe; a reader is safe; a writer has one owner.
// Errors: NOT_FOUND           no such file or directory.
//         RESOURCE_EXHAUSTED  disk, quota or descriptors are used up.
//         INVALID_ARGUMENT    the path cannot be used: no permission, read-only
//                             file system, a directory where a file must be.
//         DATA_LOSS           the file is shorter than the range asked for.
//         ALREADY_EXISTS      the name that is to be made is taken.
//         INTERNAL            the rest: the device fails.
#ifndef COMMON_IO_FILES_H_
#define COMMON_IO_FILES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weir {

// One open file for reads at any offset.
class FileReader {
 public:
  virtual ~FileReader() = default;
  // Bytes when it was opened.
  virtual int64_t size() const = 0;
  virtual const std::string& path() const = 0;
  // Fills data[0, bytes) from `offset`; DATA_LOSS when the file ends before.
  virtual absl::Status ReadAt(int64_t offset, void* data, size_t bytes) = 0;
};

// One open file for writes at its end. Destroyed unclosed: closed, errors lost.
class FileWriter {
 public:
  virtual ~FileWriter() = default;
  // On failure the file may hold a part of it.
  virtual absl::Status Append(const void* data, size_t bytes) = 0;
  // What was appended survives power loss. Never retried on one descriptor:
  // after a failure the kernel may have dropped the bytes.
  virtual absl::Status Sync() = 0;
  virtual absl::Status Close() = 0;
};

struct FileInfo {
  int64_t bytes = 0;
  bool is_directory = false;
};

class Files {
 public:
  virtual ~Files() = default;

  virtual absl::StatusOr<std::unique_ptr<FileReader>> Open(
      const std::string& path) = 0;
  // An empty file; one that exists is emptied.
  virtual absl::StatusOr<std::unique_ptr<FileWriter>> Create(
      const std::string& path) = 0;
  // Keeps what is there and writes behind it.
  virtual absl::StatusOr<std::unique_ptr<FileWriter>> OpenAppend(
      const std::string& path) = 0;
  // Replaces `to`. Durable only after SyncDirectory.
  virtual absl::Status Rename(const std::string& from,
                              const std::string& to) = 0;
  // Removes a file or an empty directory.
  virtual absl::Status Remove(const std::string& path) = 0;
  // Names without "." and "..", sorted.
  virtual absl::StatusOr<std::vector<std::string>> List(
      const std::string& directory) = 0;
  // With its parents; OK when it exists.
  virtual absl::Status MakeDirectories(const std::string& path) = 0;
  // One directory, whose parent exists. ALREADY_EXISTS when the name is taken:
  // of many callers one alone gets OK.
  virtual absl::Status MakeDirectory(const std::string& path) = 0;
  virtual absl::StatusOr<FileInfo> Stat(const std::string& path) = 0;
  virtual absl::Status SyncDirectory(const std::string& path) = 0;

  // The calls below are made of those above, so a fault in one shows here.

  absl::StatusOr<bool> Exists(const std::string& path);
  absl::StatusOr<std::string> ReadAll(const std::string& path);
  // Temporary file beside it, write, fsync, rename, fsync of the directory.
  // On failure the temporary file is removed and `path` is as it was, except
  // that a failed last fsync leaves the new contents.
  absl::Status WriteAtomically(const std::string& path,
                               absl::string_view contents);
  // Makes a finished, synced file at `temporary` visible as `path`, durably.
  absl::Status Publish(const std::string& temporary, const std::string& path);

  // The process's real files; never deleted.
  static Files* Real();
};

// A name that atomic writers use before the rename, "path.tmp.<16 hex digits>".
// It is random: on a share the processes of several hosts write beside one
// another, and in containers all of them may have the same process id.
// Lists and sweeps recognise it by IsTemporaryPath.
std::string TemporaryPath(const std::string& path);
bool IsTemporaryPath(absl::string_view path);

// "a/b" of "a/b/c"; "." of "c"; "/" of "/c".
std::string DirectoryOf(absl::string_view path);
// Joins with exactly one slash; `name` unchanged when it is absolute.
std::string JoinPath(absl::string_view directory, absl::string_view name);

// The error for `error_number` while doing `what` ("open", "rename") to `path`.
absl::Status FileError(int error_number, absl::string_view what,
                       absl::string_view path);

}  // namespace weir

#endif  // COMMON_IO_FILES_H_
