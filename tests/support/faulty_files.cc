#include "tests/support/faulty_files.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir {
namespace {

class FaultyReader : public FileReader {
 public:
  FaultyReader(FaultyFiles* files, std::unique_ptr<FileReader> base)
      : files_(files), base_(std::move(base)) {}
  int64_t size() const override { return base_->size(); }
  const std::string& path() const override { return base_->path(); }
  absl::Status ReadAt(int64_t offset, void* data, size_t bytes) override {
    WEIR_RETURN_IF_ERROR(files_->Count("read", base_->path()));
    return base_->ReadAt(offset, data, bytes);
  }

 private:
  FaultyFiles* const files_;
  const std::unique_ptr<FileReader> base_;
};

class FaultyWriter : public FileWriter {
 public:
  FaultyWriter(FaultyFiles* files, std::string path,
               std::unique_ptr<FileWriter> base)
      : files_(files), path_(std::move(path)), base_(std::move(base)) {}
  absl::Status Append(const void* data, size_t bytes) override {
    const absl::Status fault = files_->Count("append", path_);
    if (!fault.ok()) {
      // A full disk takes what still fits. Half is enough to show whether a
      // caller takes a part for the whole.
      base_->Append(data, bytes / 2).IgnoreError();
      return fault;
    }
    return base_->Append(data, bytes);
  }
  absl::Status Sync() override {
    WEIR_RETURN_IF_ERROR(files_->Count("sync", path_));
    return base_->Sync();
  }
  absl::Status Close() override {
    WEIR_RETURN_IF_ERROR(files_->Count("close", path_));
    return base_->Close();
  }

 private:
  FaultyFiles* const files_;
  const std::string path_;
  const std::unique_ptr<FileWriter> base_;
};

}  // namespace

void FaultyFiles::FailCall(int64_t nth, absl::Status error, bool sticky) {
  MutexLock lock(&mutex_);
  calls_ = 0;
  fail_at_ = nth;
  sticky_ = sticky;
  error_ = std::move(error);
}

int64_t FaultyFiles::calls() const {
  MutexLock lock(&mutex_);
  return calls_;
}

void FaultyFiles::Watch(std::function<void(const std::string&)> watch) {
  MutexLock lock(&mutex_);
  watch_ = std::move(watch);
}

absl::Status FaultyFiles::Count(const std::string& what,
                                const std::string& path) {
  // `watch` runs without the lock, since it may use these files itself.
  std::function<void(const std::string&)> watch;
  absl::Status result;
  {
    MutexLock lock(&mutex_);
    ++calls_;
    watch = watch_;
    if (fail_at_ > 0 &&
        (calls_ == fail_at_ || (sticky_ && calls_ > fail_at_))) {
      result = Annotate(error_, absl::StrCat("cannot ", what, " ", path));
    }
  }
  if (watch) {
    watch(absl::StrCat(what, " ", path));
  }
  return result;
}

// Each call counts first and touches the real file only if it may: a call that
// fails has done nothing. Append is the exception.

absl::StatusOr<std::unique_ptr<FileReader>> FaultyFiles::Open(
    const std::string& path) {
  WEIR_RETURN_IF_ERROR(Count("open", path));
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<FileReader> base, base_->Open(path));
  return std::make_unique<FaultyReader>(this, std::move(base));
}

absl::StatusOr<std::unique_ptr<FileWriter>> FaultyFiles::Create(
    const std::string& path) {
  WEIR_RETURN_IF_ERROR(Count("create", path));
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<FileWriter> base, base_->Create(path));
  return std::make_unique<FaultyWriter>(this, path, std::move(base));
}

absl::StatusOr<std::unique_ptr<FileWriter>> FaultyFiles::CreateNew(
    const std::string& path) {
  WEIR_RETURN_IF_ERROR(Count("create", path));
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<FileWriter> base,
                        base_->CreateNew(path));
  return std::make_unique<FaultyWriter>(this, path, std::move(base));
}

absl::StatusOr<std::unique_ptr<FileWriter>> FaultyFiles::OpenAppend(
    const std::string& path) {
  WEIR_RETURN_IF_ERROR(Count("open", path));
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<FileWriter> base,
                        base_->OpenAppend(path));
  return std::make_unique<FaultyWriter>(this, path, std::move(base));
}

absl::Status FaultyFiles::Rename(const std::string& from,
                                 const std::string& to) {
  WEIR_RETURN_IF_ERROR(Count("rename", to));
  return base_->Rename(from, to);
}

absl::Status FaultyFiles::RenameNew(const std::string& from,
                                    const std::string& to) {
  WEIR_RETURN_IF_ERROR(Count("rename", to));
  return base_->RenameNew(from, to);
}

absl::Status FaultyFiles::Remove(const std::string& path) {
  WEIR_RETURN_IF_ERROR(Count("remove", path));
  return base_->Remove(path);
}

absl::StatusOr<std::vector<std::string>> FaultyFiles::List(
    const std::string& directory) {
  WEIR_RETURN_IF_ERROR(Count("list", directory));
  return base_->List(directory);
}

absl::Status FaultyFiles::MakeDirectory(const std::string& path) {
  WEIR_RETURN_IF_ERROR(Count("make directory", path));
  return base_->MakeDirectory(path);
}

absl::Status FaultyFiles::MakeDirectories(const std::string& path) {
  WEIR_RETURN_IF_ERROR(Count("make directory", path));
  return base_->MakeDirectories(path);
}

absl::StatusOr<FileInfo> FaultyFiles::Stat(const std::string& path) {
  WEIR_RETURN_IF_ERROR(Count("stat", path));
  return base_->Stat(path);
}

absl::Status FaultyFiles::SyncDirectory(const std::string& path) {
  WEIR_RETURN_IF_ERROR(Count("fsync directory", path));
  return base_->SyncDirectory(path);
}

absl::StatusOr<std::unique_ptr<HeldLock>> FaultyFiles::TryLock(
    const std::string& path, const std::string& who) {
  WEIR_RETURN_IF_ERROR(Count("lock", path));
  return base_->TryLock(path, who);
}

}  // namespace weir
