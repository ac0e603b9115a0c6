// Files that fail when a test says so.
//
// Terms
//   call  one virtual call of Files, FileReader or FileWriter, counted from 1
//         over everything that was opened through this object.
//
// A failing Append writes the first half of its bytes first, as a full disk
// does. Threads: safe.
#ifndef TESTS_SUPPORT_FAULTY_FILES_H_
#define TESTS_SUPPORT_FAULTY_FILES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/io/files.h"

namespace weir {

class FaultyFiles : public Files {
 public:
  // `base` is borrowed.
  explicit FaultyFiles(Files* base) : base_(base) {}

  // Makes call number `nth` from now (1 = the next) return `error`; if
  // `sticky`, every later one, too. Replaces what was asked for before. With
  // nth = 0 no call fails.
  void FailCall(int64_t nth, absl::Status error, bool sticky = false);
  // Calls since construction or the last FailCall.
  int64_t calls() const;
  // Runs `watch` before each call, with the call's name and path: "rename a/b".
  void Watch(std::function<void(const std::string&)> watch);

  absl::StatusOr<std::unique_ptr<FileReader>> Open(
      const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileWriter>> Create(
      const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileWriter>> CreateNew(
      const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileWriter>> OpenAppend(
      const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status RenameNew(const std::string& from,
                         const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& directory) override;
  absl::Status MakeDirectories(const std::string& path) override;
  absl::Status MakeDirectory(const std::string& path) override;
  absl::StatusOr<FileInfo> Stat(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<HeldLock>> TryLock(
      const std::string& path, const std::string& who) override;

  // Counts one call and returns its error; for the readers and writers.
  absl::Status Count(const std::string& what, const std::string& path);

 private:
  Files* const base_;

  mutable Mutex mutex_;
  int64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t fail_at_ ABSL_GUARDED_BY(mutex_) = 0;
  bool sticky_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::function<void(const std::string&)> watch_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // TESTS_SUPPORT_FAULTY_FILES_H_
