#include "tests/fuzz/memory_files.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

class MemoryReader : public FileReader {
 public:
  MemoryReader(std::string path, const std::string& contents)
      : path_(std::move(path)), contents_(contents) {}

  int64_t size() const override {
    return static_cast<int64_t>(contents_.size());
  }
  const std::string& path() const override { return path_; }

  absl::Status ReadAt(int64_t offset, void* data, size_t bytes) override {
    // As a file of the system does, this takes any numbers.
    if (offset < 0 || offset > size() ||
        bytes > contents_.size() - static_cast<size_t>(offset)) {
      return absl::DataLossError(absl::StrCat(path_, ": ends"));
    }
    if (bytes > 0) {
      std::memcpy(data, contents_.data() + offset, bytes);
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const std::string& contents_;
};

absl::Status Refused(const std::string& path) {
  return FileError(EROFS, "write", path);
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileReader>> MemoryFiles::Open(
    const std::string& path) {
  const auto it = contents_.find(path);
  if (it == contents_.end()) {
    return FileError(ENOENT, "open", path);
  }
  return std::make_unique<MemoryReader>(path, it->second);
}

absl::StatusOr<FileInfo> MemoryFiles::Stat(const std::string& path) {
  const auto it = contents_.find(path);
  if (it == contents_.end()) {
    return FileError(ENOENT, "stat", path);
  }
  return FileInfo{static_cast<int64_t>(it->second.size()), false};
}

absl::StatusOr<std::vector<std::string>> MemoryFiles::List(
    const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& [path, unused] : contents_) {
    if (DirectoryOf(path) == directory) {
      names.push_back(path.substr(directory.size() + 1));
    }
  }
  return names;
}

absl::StatusOr<std::unique_ptr<FileWriter>> MemoryFiles::Create(
    const std::string& path) {
  return Refused(path);
}

absl::StatusOr<std::unique_ptr<FileWriter>> MemoryFiles::CreateNew(
    const std::string& path) {
  return Refused(path);
}

absl::StatusOr<std::unique_ptr<FileWriter>> MemoryFiles::OpenAppend(
    const std::string& path) {
  return Refused(path);
}

absl::Status MemoryFiles::Rename(const std::string& from,
                                 const std::string& /*to*/) {
  return Refused(from);
}

absl::Status MemoryFiles::RenameNew(const std::string& from,
                                    const std::string& /*to*/) {
  return Refused(from);
}

absl::Status MemoryFiles::Remove(const std::string& path) {
  return Refused(path);
}

absl::Status MemoryFiles::MakeDirectories(const std::string& path) {
  return Refused(path);
}

absl::Status MemoryFiles::MakeDirectory(const std::string& path) {
  return Refused(path);
}

absl::Status MemoryFiles::SyncDirectory(const std::string& path) {
  return Refused(path);
}

}  // namespace weir
