// Files that are strings, for fuzzers of what reads files.
//
// Files are put here by path and can then be opened, looked at and listed. All
// that would write is refused with INVALID_ARGUMENT.
//
// Threads: compatible.
#ifndef TESTS_FUZZ_MEMORY_FILES_H_
#define TESTS_FUZZ_MEMORY_FILES_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/io/files.h"

namespace weir {

class MemoryFiles : public Files {
 public:
  void Put(const std::string& path, std::string contents) {
    contents_[path] = std::move(contents);
  }

  absl::StatusOr<std::unique_ptr<FileReader>> Open(
      const std::string& path) override;
  absl::StatusOr<FileInfo> Stat(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& directory) override;

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
  absl::Status MakeDirectories(const std::string& path) override;
  absl::Status MakeDirectory(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;

 private:
  std::map<std::string, std::string> contents_;
};

}  // namespace weir

#endif  // TESTS_FUZZ_MEMORY_FILES_H_
