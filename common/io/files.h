// Files as a constructor argument: every read, write and rename that Weir does
// goes through here, so that a test can make the k-th one fail.
//
// Place: checkpoints, manifests, exports, logs and data readers.
//
// Invariants
//   I1. WriteAtomically leaves either the old contents or the new, each as a
//       whole, whatever fails and whenever the process dies. After OK the new
//       ones survive power loss.
//   I2. Every error names the path, what was tried and the system's reason.
// Threads: Files is safe; a reader is safe; a writer has one owner.
// Errors: NOT_FOUND           no such file or directory.
//         RESOURCE_EXHAUSTED  disk, quota or descriptors are used up.
//         INVALID_ARGUMENT    the path cannot be used: no permission, read-only
//                             file system, a directory, a pipe or a device
//                             where a file must be.
//         DATA_LOSS           the file is shorter than the range asked for.
//         ALREADY_EXISTS      the name that is to be made is taken.
//         UNAVAILABLE         the device fails, or the share does not answer.
//         INTERNAL            the rest.
#ifndef COMMON_IO_FILES_H_
#define COMMON_IO_FILES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/io/object_store.h"

namespace weir {

// One open file for writes at its end. If it is destroyed without Close, it is
// closed and errors are lost.
class FileWriter {
 public:
  virtual ~FileWriter() = default;
  // On failure the file may hold a part of the data.
  virtual absl::Status Append(const void* data, size_t bytes) = 0;
  // After OK, what was appended survives power loss. After a failure it must
  // not be tried again: the kernel may have dropped the bytes.
  virtual absl::Status Sync() = 0;
  virtual absl::Status Close() = 0;
};

// As an ObjectStore its objects are files, and their names are paths.
class Files : public ObjectStore {
 public:
  // Opens a regular file.
  absl::StatusOr<std::unique_ptr<FileReader>> Open(
      const std::string& path) override = 0;
  // Files and directories are made for this user alone (modes 0600 and 0700):
  // weights and logs are nobody else's business.

  // Makes an empty file. One that exists is emptied.
  virtual absl::StatusOr<std::unique_ptr<FileWriter>> Create(
      const std::string& path) = 0;
  // Makes a new file. ALREADY_EXISTS if the name is taken, also by a link: what
  // it points to stays as it is.
  virtual absl::StatusOr<std::unique_ptr<FileWriter>> CreateNew(
      const std::string& path) = 0;
  // Opens a file to write behind what is there. Makes it if it does not exist.
  virtual absl::StatusOr<std::unique_ptr<FileWriter>> OpenAppend(
      const std::string& path) = 0;
  // Renames `from` and replaces `to`. Durable only after SyncDirectory.
  virtual absl::Status Rename(const std::string& from,
                              const std::string& to) = 0;
  // Renames a file, unless `to` is there already: then ALREADY_EXISTS, and
  // `from` stays. Only one of many callers gets OK.
  virtual absl::Status RenameNew(const std::string& from,
                                 const std::string& to) = 0;
  // Of ObjectStore there are also TryLock, List (without "." and ".."),
  // MakeDirectories, MakeDirectory, Remove, Stat and SyncDirectory.

  // The calls below are made of those above, so FaultyFiles reaches them, too.

  absl::StatusOr<std::string> ReadAll(const std::string& path) override;
  // Writes a temporary file beside `path`, syncs it, renames it and syncs the
  // directory, which has to exist. On failure the temporary file is removed and
  // `path` is as it was, except that the new contents stay if the last sync
  // fails.
  absl::Status WriteAtomically(const std::string& path,
                               absl::string_view contents) override;
  // Makes a finished, synced file at `temporary` visible as `path`, durably.
  absl::Status Publish(const std::string& temporary, const std::string& path);
  absl::Status WriteNew(const std::string& path,
                        absl::string_view contents) override;
  absl::StatusOr<std::unique_ptr<ObjectWriter>> BeginWrite(
      const std::string& path, int64_t bytes_expected) override;
  // On failure the file may have got a part of the contents.
  absl::Status Append(const std::string& path,
                      absl::string_view contents) override;
  // Removes the files with temporary names.
  absl::Status DropUnfinished(const std::string& directory) override;

  // The process's real files; never deleted.
  static Files* Real();
};

// The name that atomic writers use before the rename: "path.tmp.<16 hex
// digits>". The digits are random, because on a shared file system the
// processes of several hosts write beside one another, and in containers all of
// them may have the same process id. Code that lists or cleans up directories
// recognises such a name by IsTemporaryPath.
std::string TemporaryPath(const std::string& path);
bool IsTemporaryPath(absl::string_view path);

// The directory of a path: "a/b" for "a/b/c", "." for "c", "/" for "/c".
std::string DirectoryOf(absl::string_view path);
// Joins with exactly one slash; `name` unchanged when it is absolute.
std::string JoinPath(absl::string_view directory, absl::string_view name);

// The error for `error_number` while doing `what` ("open", "rename") to `path`.
absl::Status FileError(int error_number, absl::string_view what,
                       absl::string_view path);

}  // namespace weir

#endif  // COMMON_IO_FILES_H_
