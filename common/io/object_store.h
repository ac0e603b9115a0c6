// A place that holds whole objects under names: what a checkpoint needs of the
// world, and nothing more.
//
// Place: what a run leaves behind (checkpoints, DONE, curves) is written to one
// and read from one. Files is the one of paths, S3Store that of URLs
// ("s3://bucket/key"), and AnyStore() takes either kind of name.
//
// What every member promises, and object_store_contract.h tests
//   An object is seen whole or not at all, whatever fails and whenever the
//   process dies. After OK it is durable, and whoever lists or reads next sees
//   what was done. Every error names the object and says what was tried.
// Threads: safe. A reader is safe; a writer has one owner.
// Errors: NOT_FOUND           no such object.
//         ALREADY_EXISTS      WriteNew: other contents are there.
//         DATA_LOSS           the object is shorter than the range asked for,
//                             or was replaced while it was read.
//         RESOURCE_EXHAUSTED  the place is full.
//         INVALID_ARGUMENT    the place, or the name, is of no use.
//         UNAUTHENTICATED     no right to do this.
//         UNAVAILABLE         the place does not answer, after all repeats.
//                             Whether the call was carried out is not known.
//         INTERNAL            the rest.
#ifndef COMMON_IO_OBJECT_STORE_H_
#define COMMON_IO_OBJECT_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weir {

// One open object or file for reads at any offset.
class FileReader {
 public:
  virtual ~FileReader() = default;
  // The size in bytes when it was opened.
  virtual int64_t size() const = 0;
  virtual const std::string& path() const = 0;
  // A text that is another one whenever the object was replaced; "" of a file.
  virtual std::string version() const { return ""; }
  // Fills data[0, bytes) from `offset` on. DATA_LOSS if the file ends before.
  virtual absl::Status ReadAt(int64_t offset, void* data, size_t bytes) = 0;
};

// An object that is being written. It is there once Finish has returned OK. One
// that is destroyed before leaves nothing behind, as far as the place answers.
class ObjectWriter {
 public:
  virtual ~ObjectWriter() = default;
  // After an error nothing else may be called.
  virtual absl::Status Append(const void* data, size_t bytes) = 0;
  virtual absl::Status Finish() = 0;
};

// A lock that is held while this lives.
class HeldLock {
 public:
  virtual ~HeldLock() = default;
};

struct FileInfo {
  int64_t bytes = 0;
  bool is_directory = false;
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  // Opens an object for reads of ranges. The reader sees one version of it.
  virtual absl::StatusOr<std::unique_ptr<FileReader>> Open(
      const std::string& name) = 0;
  // Reads a whole object; from an object store at most 64 MiB.
  virtual absl::StatusOr<std::string> ReadAll(const std::string& name) = 0;
  virtual absl::StatusOr<FileInfo> Stat(const std::string& name) = 0;
  // True for directories as well.
  absl::StatusOr<bool> Exists(const std::string& name);

  // Writes a whole object, in place of one that is there.
  virtual absl::Status WriteAtomically(const std::string& name,
                                       absl::string_view contents) = 0;
  // Writes a new object. Of several callers at one time one gets OK, and the
  // others ALREADY_EXISTS. OK as well if these very contents are there: the
  // answer to an earlier try was lost.
  virtual absl::Status WriteNew(const std::string& name,
                                absl::string_view contents) = 0;
  // Begins a large object of about `bytes_expected`, which takes the place of
  // one that is there when it is finished.
  virtual absl::StatusOr<std::unique_ptr<ObjectWriter>> BeginWrite(
      const std::string& name, int64_t bytes_expected) = 0;

  // Writes behind what an object has, or makes it. UNIMPLEMENTED in an object
  // store: GrowingFile is for both.
  virtual absl::Status Append(const std::string& name,
                              absl::string_view contents) = 0;

  // Directories. On a disk an object's directory has to exist; an object store
  // has as many as the names of its objects say.

  // The names in a directory, sorted. On a disk what is being written has a
  // temporary name (IsTemporaryPath); an object store does not show it.
  virtual absl::StatusOr<std::vector<std::string>> List(
      const std::string& directory) = 0;
  // Makes a directory and its parents. OK if it exists.
  virtual absl::Status MakeDirectories(const std::string& path) = 0;
  // Makes one directory, whose parent exists. ALREADY_EXISTS if the name is
  // taken, so only one of many callers gets OK.
  virtual absl::Status MakeDirectory(const std::string& path) = 0;
  // Makes durable which names a directory has.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  // Removes an object or an empty directory. NOT_FOUND if there is none, but OK
  // in an object store.
  virtual absl::Status Remove(const std::string& name) = 0;
  // Drops what writers that died have left of the objects in a directory.
  // REQUIRES: nobody writes one now.
  virtual absl::Status DropUnfinished(const std::string& directory) = 0;

  // Locks an object, which nothing else is written to, against other processes,
  // and lets them read `who`. The lock ends with its process, too.
  // ALREADY_EXISTS if another process has it; the message is what that one has
  // written. UNIMPLEMENTED where there are no locks, as in an object store.
  virtual absl::StatusOr<std::unique_ptr<HeldLock>> TryLock(
      const std::string& name, const std::string& who);
};

// OK if the store holds to WriteNew, FAILED_PRECONDITION if it writes over what
// is there. Writes twice below `directory`, and deletes what it has written.
absl::Status CheckWriteNew(ObjectStore* store, const std::string& directory);

}  // namespace weir

#endif  // COMMON_IO_OBJECT_STORE_H_
