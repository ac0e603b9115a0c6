#include "sim/places/disk.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"

namespace weir::sim {
namespace {

class Reader : public FileReader {
 public:
  Reader(SimDisk* disk, std::string path,
         std::shared_ptr<const SimDisk::File> file)
      : disk_(disk),
        path_(std::move(path)),
        file_(std::move(file)),
        size_(static_cast<int64_t>(file_->bytes.size())) {}

  int64_t size() const override { return size_; }
  const std::string& path() const override { return path_; }
  absl::Status ReadAt(int64_t offset, void* data, size_t bytes) override {
    return disk_->Read(path_, *file_, offset, data, bytes);
  }

 private:
  SimDisk* const disk_;
  const std::string path_;
  const std::shared_ptr<const SimDisk::File> file_;
  const int64_t size_;
};

class Writer : public FileWriter {
 public:
  Writer(SimDisk* disk, std::string path, std::shared_ptr<SimDisk::File> file)
      : disk_(disk), path_(std::move(path)), file_(std::move(file)) {}

  absl::Status Append(const void* data, size_t bytes) override {
    return disk_->Append(path_, file_.get(), data, bytes);
  }
  absl::Status Sync() override { return disk_->Sync(path_, file_.get()); }
  absl::Status Close() override { return absl::OkStatus(); }

 private:
  SimDisk* const disk_;
  const std::string path_;
  const std::shared_ptr<SimDisk::File> file_;
};

class HeldName : public HeldLock {
 public:
  HeldName(SimDisk* disk, std::string path, uint64_t lock)
      : disk_(disk), path_(std::move(path)), lock_(lock) {}
  ~HeldName() override { disk_->Unlock(path_, lock_); }

 private:
  SimDisk* const disk_;
  const std::string path_;
  const uint64_t lock_;
};

// What a loss of power leaves of a file.
std::shared_ptr<SimDisk::File> Survive(const SimDisk::File& file) {
  auto left = std::make_shared<SimDisk::File>();
  const size_t safe = std::min(file.synced, file.kept);
  const size_t more =
      static_cast<size_t>(RandomBelow(file.bytes.size() - file.synced + 1));
  left->bytes = file.bytes.substr(0, file.synced + more);
  if (RandomBelow(2) == 0) {
    std::fill(left->bytes.begin() + static_cast<int64_t>(safe),
              left->bytes.end(), '\0');
  }
  left->synced = left->bytes.size();
  return left;
}

}  // namespace

void SimDisk::OnProcessGone(int process) {  // I3
  std::erase_if(locks_, [process](const auto& held) {
    return held.second.process == process;
  });
}

void SimDisk::LosePower() {  // I2
  for (const auto& [directory, changes] : not_synced_) {
    const size_t kept = static_cast<size_t>(RandomBelow(changes.size() + 1));
    for (size_t i = 0; i < kept; ++i) {
      Carry(changes[i], &durable_);
    }
  }
  not_synced_.clear();
  // Names whose directory is gone are gone, too. Directories come before what
  // they hold.
  Names left;
  for (const auto& [path, file] : durable_) {
    if (path == "/" || left.count(DirectoryOf(path)) != 0) {
      left[path] = file == nullptr ? nullptr : Survive(*file);
    }
  }
  now_ = durable_ = std::move(left);
  locks_.clear();
  OnChangeOfAll();
}

bool SimDisk::Rot(const std::string& path) {
  const auto found = now_.find(path);
  if (found == now_.end() || found->second == nullptr ||
      found->second->bytes.empty()) {
    return false;
  }
  FlipOneBit(&found->second->bytes);
  OnChange(path);
  return true;
}

bool SimDisk::IsDirectory(const std::string& path) const {
  const auto found = now_.find(path);
  return found != now_.end() && found->second == nullptr;
}

absl::Status SimDisk::CheckCanMake(const std::string& path,
                                   const char* what) const {
  if (!IsDirectory(DirectoryOf(path))) {
    return FileError(ENOENT, what, path);
  }
  return full() ? FileError(ENOSPC, what, path) : absl::OkStatus();
}

void SimDisk::Carry(const Change& change, Names* names) {
  for (const std::string& path : change.removed) {
    names->erase(path);
  }
  for (const auto& [path, file] : change.added) {
    (*names)[path] = file;
  }
}

void SimDisk::Apply(const std::string& directory, Change change) {
  Carry(change, &now_);
  for (const std::string& path : change.removed) {
    OnChange(path);
  }
  for (const auto& [path, file] : change.added) {
    OnChange(path);
  }
  not_synced_[directory].push_back(std::move(change));
  Written();
}

absl::StatusOr<std::unique_ptr<FileReader>> SimDisk::Open(
    const std::string& path) {
  FilePointer file;
  WEIR_RETURN_IF_ERROR(Call(path, [&]() -> absl::Status {
    const auto found = now_.find(path);
    if (found == now_.end() || found->second == nullptr) {
      return FileError(found == now_.end() ? ENOENT : EISDIR, "open", path);
    }
    file = found->second;
    return absl::OkStatus();
  }));
  return std::make_unique<Reader>(this, path, std::move(file));
}

absl::Status SimDisk::Read(const std::string& path, const File& file,
                           int64_t offset, void* data, size_t bytes) {
  return Call(path, [&]() -> absl::Status {
    const auto from = static_cast<size_t>(offset);
    if (from > file.bytes.size() || bytes > file.bytes.size() - from) {
      return absl::DataLossError(absl::StrCat(path, " is too short"));
    }
    std::copy_n(file.bytes.data() + from, bytes, static_cast<char*>(data));
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<FileWriter>> SimDisk::OpenWriter(
    const std::string& path, bool is_new, bool empty) {
  FilePointer file;
  WEIR_RETURN_IF_ERROR(Call(path, [&]() -> absl::Status {
    const auto found = now_.find(path);
    if (found != now_.end() && (is_new || found->second == nullptr)) {
      return FileError(is_new ? EEXIST : EISDIR, "create", path);
    }
    if (found != now_.end() && !empty) {
      file = found->second;
      return absl::OkStatus();
    }
    WEIR_RETURN_IF_ERROR(CheckCanMake(path, "create"));
    file = std::make_shared<File>();
    Apply(DirectoryOf(path), {.removed = {}, .added = {{path, file}}});
    return absl::OkStatus();
  }));
  return std::make_unique<Writer>(this, path, std::move(file));
}

absl::StatusOr<std::unique_ptr<FileWriter>> SimDisk::Create(
    const std::string& path) {
  return OpenWriter(path, /*is_new=*/false, /*empty=*/true);
}

absl::StatusOr<std::unique_ptr<FileWriter>> SimDisk::CreateNew(
    const std::string& path) {
  return OpenWriter(path, /*is_new=*/true, /*empty=*/true);
}

absl::StatusOr<std::unique_ptr<FileWriter>> SimDisk::OpenAppend(
    const std::string& path) {
  return OpenWriter(path, /*is_new=*/false, /*empty=*/false);
}

absl::Status SimDisk::Append(const std::string& path, File* file,
                             const void* data, size_t bytes) {
  return Call(path, [&]() -> absl::Status {
    const auto* const from = static_cast<const char*>(data);
    const bool cut = full() && bytes > 0;
    file->bytes.append(
        from, cut ? static_cast<size_t>(RandomBelow(bytes)) : bytes);  // I1
    OnChange(path);
    return cut ? FileError(ENOSPC, "write", path) : absl::OkStatus();
  });
}

absl::Status SimDisk::Sync(const std::string& path, File* file) {
  const absl::Status status = Call(path, [&] {
    file->synced = file->bytes.size();
    return absl::OkStatus();
  });
  if (!status.ok()) {  // I4
    file->kept = std::min(file->kept, file->synced);
  }
  return status;
}

absl::Status SimDisk::Rename(const std::string& from, const std::string& to) {
  return Call(from, [&]() -> absl::Status {
    const auto found = now_.find(from);
    if (found == now_.end() || !IsDirectory(DirectoryOf(to))) {
      return FileError(ENOENT, absl::StrCat("rename ", from, " to"), to);
    }
    if (found->second == nullptr || DirectoryOf(from) != DirectoryOf(to)) {
      return FileError(EXDEV, absl::StrCat("rename ", from, " to"), to);
    }
    Apply(DirectoryOf(to), {.removed = {from}, .added = {{to, found->second}}});
    return absl::OkStatus();
  });
}

absl::Status SimDisk::RenameNew(const std::string& from,
                                const std::string& to) {
  // As the product's files do it: a link, then a removal.
  WEIR_RETURN_IF_ERROR(Call(from, [&]() -> absl::Status {
    const auto found = now_.find(from);
    if (found == now_.end() || found->second == nullptr) {
      return FileError(ENOENT, absl::StrCat("link ", from, " to"), to);
    }
    if (now_.count(to) != 0) {
      return FileError(EEXIST, absl::StrCat("link ", from, " to"), to);
    }
    WEIR_RETURN_IF_ERROR(CheckCanMake(to, "link"));
    Apply(DirectoryOf(to), {.removed = {}, .added = {{to, found->second}}});
    return absl::OkStatus();
  }));
  return Remove(from);
}

absl::Status SimDisk::Remove(const std::string& path) {
  return Call(path, [&]() -> absl::Status {
    if (now_.count(path) == 0) {
      return FileError(ENOENT, "remove", path);
    }
    const auto next = now_.lower_bound(absl::StrCat(path, "/"));
    if (next != now_.end() && absl::StartsWith(next->first, path + "/")) {
      return FileError(ENOTEMPTY, "remove", path);
    }
    Apply(DirectoryOf(path), {.removed = {path}, .added = {}});
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<std::string>> SimDisk::List(
    const std::string& path) {
  const std::string directory(absl::StripSuffix(path, "/"));
  std::vector<std::string> names;
  WEIR_RETURN_IF_ERROR(Call(directory, [&]() -> absl::Status {
    if (!IsDirectory(directory)) {
      return FileError(now_.count(directory) == 0 ? ENOENT : ENOTDIR, "list",
                       directory);
    }
    const std::string prefix = absl::StrCat(directory, "/");
    for (auto one = now_.lower_bound(prefix);
         one != now_.end() && absl::StartsWith(one->first, prefix); ++one) {
      const std::string name = one->first.substr(prefix.size());
      if (!absl::StrContains(name, '/')) {
        names.push_back(name);
      }
    }
    return absl::OkStatus();
  }));
  return names;
}

absl::Status SimDisk::MakeDirectories(const std::string& path) {
  if (now_.count(path) == 0) {
    WEIR_RETURN_IF_ERROR(MakeDirectories(DirectoryOf(path)));
    const absl::Status made = MakeDirectory(path);
    return absl::IsAlreadyExists(made) ? absl::OkStatus() : made;
  }
  return Call(path, [&] {
    return IsDirectory(path) ? absl::OkStatus()
                             : FileError(ENOTDIR, "make directory", path);
  });
}

absl::Status SimDisk::MakeDirectory(const std::string& path) {
  return Call(path, [&]() -> absl::Status {
    if (now_.count(path) != 0) {
      return FileError(EEXIST, "make directory", path);
    }
    WEIR_RETURN_IF_ERROR(CheckCanMake(path, "make directory"));
    Apply(DirectoryOf(path), {.removed = {}, .added = {{path, nullptr}}});
    return absl::OkStatus();
  });
}

absl::StatusOr<FileInfo> SimDisk::Stat(const std::string& path) {
  FileInfo info;
  WEIR_RETURN_IF_ERROR(Call(path, [&]() -> absl::Status {
    const auto found = now_.find(path);
    if (found == now_.end()) {
      return FileError(ENOENT, "stat", path);
    }
    info.is_directory = found->second == nullptr;
    info.bytes = info.is_directory
                     ? 0
                     : static_cast<int64_t>(found->second->bytes.size());
    return absl::OkStatus();
  }));
  return info;
}

absl::Status SimDisk::SyncDirectory(const std::string& path) {
  return Call(path, [&]() -> absl::Status {
    if (!IsDirectory(path)) {
      return FileError(ENOENT, "open directory", path);
    }
    if (observed()) {
      return absl::OkStatus();
    }
    for (const Change& change : not_synced_[path]) {
      Carry(change, &durable_);
    }
    not_synced_.erase(path);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<HeldLock>> SimDisk::TryLock(
    const std::string& path, const std::string& who) {
  uint64_t lock = 0;
  WEIR_RETURN_IF_ERROR(Call(path, [&]() -> absl::Status {
    if (const auto held = locks_.find(path); held != locks_.end()) {
      return absl::AlreadyExistsError(held->second.who);
    }
    if (now_.count(path) == 0) {
      WEIR_RETURN_IF_ERROR(CheckCanMake(path, "open"));
      Apply(DirectoryOf(path),
            {.removed = {}, .added = {{path, std::make_shared<File>()}}});
    }
    lock = ++locks_taken_;
    locks_[path] = {Process(), lock, who};
    return absl::OkStatus();
  }));
  return std::make_unique<HeldName>(this, path, lock);
}

void SimDisk::Unlock(const std::string& path, uint64_t lock) {
  const auto held = locks_.find(path);
  if (held != locks_.end() && held->second.lock == lock) {
    locks_.erase(held);
  }
}

}  // namespace weir::sim
