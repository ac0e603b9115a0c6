#include "sim/places/object_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "common/threads/scheduler.h"

namespace weir::sim {
namespace {

constexpr char kDirectoryMark[] = ".directory";

std::string Below(absl::string_view directory) {
  return absl::StrCat(absl::StripSuffix(directory, "/"), "/");
}

class Reader : public FileReader {
 public:
  Reader(std::string name, std::shared_ptr<const std::string> contents)
      : name_(std::move(name)), contents_(std::move(contents)) {}

  int64_t size() const override {
    return static_cast<int64_t>(contents_->size());
  }
  const std::string& path() const override { return name_; }
  absl::Status ReadAt(int64_t offset, void* data, size_t bytes) override {
    if (offset < 0 || offset > size() ||
        bytes > contents_->size() - static_cast<size_t>(offset)) {
      return absl::DataLossError(absl::StrCat(name_, " is too short"));
    }
    std::copy_n(contents_->data() + offset, bytes, static_cast<char*>(data));
    return absl::OkStatus();
  }

 private:
  const std::string name_;
  const std::shared_ptr<const std::string> contents_;
};

class Writer : public ObjectWriter {
 public:
  Writer(SimObjectStore* store, std::string name)
      : store_(store), name_(std::move(name)) {}

  absl::Status Append(const void* data, size_t bytes) override {
    contents_.append(static_cast<const char*>(data), bytes);
    return absl::OkStatus();
  }
  absl::Status Finish() override {
    return store_->WriteAtomically(name_, contents_);
  }

 private:
  SimObjectStore* const store_;
  const std::string name_;
  std::string contents_;
};

}  // namespace

absl::Status SimObjectStore::CheckRoom(const std::string& name) const {
  return full() ? absl::ResourceExhaustedError(
                      absl::StrCat(name, ": the store is full"))
                : absl::OkStatus();
}

void SimObjectStore::Put(const std::string& name, absl::string_view contents) {
  const std::string directory = DirectoryOf(name);
  const bool first = !HasBelow(directory);
  objects_[name] = std::make_shared<const std::string>(contents);
  OnChange(name);
  if (first) {
    OnChange(directory);
  }
  Written();
}

bool SimObjectStore::Rot(const std::string& name) {
  const auto found = objects_.find(name);
  if (found == objects_.end() || found->second->empty()) {
    return false;
  }
  std::string contents = *found->second;
  FlipOneBit(&contents);
  found->second = std::make_shared<const std::string>(std::move(contents));
  OnChange(name);
  return true;
}

bool SimObjectStore::HasBelow(const std::string& directory) const {
  const std::string prefix = Below(directory);
  const auto first = objects_.lower_bound(prefix);
  return first != objects_.end() && absl::StartsWith(first->first, prefix);
}

absl::StatusOr<std::unique_ptr<FileReader>> SimObjectStore::Open(
    const std::string& name) {
  Contents contents;
  const absl::Status status = Call(name, [&]() -> absl::Status {
    const auto found = objects_.find(name);
    if (found == objects_.end()) {
      return absl::NotFoundError(absl::StrCat(name, ": no such object"));
    }
    contents = found->second;
    return absl::OkStatus();
  });
  if (!status.ok()) {
    return status;
  }
  return std::make_unique<Reader>(name, std::move(contents));
}

absl::StatusOr<std::string> SimObjectStore::ReadAll(const std::string& name) {
  absl::StatusOr<std::unique_ptr<FileReader>> reader = Open(name);
  if (!reader.ok()) {
    return reader.status();
  }
  std::string contents(static_cast<size_t>((*reader)->size()), '\0');
  const absl::Status status =
      (*reader)->ReadAt(0, contents.data(), contents.size());
  return status.ok() ? absl::StatusOr<std::string>(std::move(contents))
                     : status;
}

absl::StatusOr<FileInfo> SimObjectStore::Stat(const std::string& name) {
  FileInfo info;
  const absl::Status status = Call(name, [&]() -> absl::Status {
    if (const auto found = objects_.find(name); found != objects_.end()) {
      info.bytes = static_cast<int64_t>(found->second->size());
      return absl::OkStatus();
    }
    info.is_directory = HasBelow(name);
    return info.is_directory
               ? absl::OkStatus()
               : absl::NotFoundError(absl::StrCat(name, ": no such object"));
  });
  return status.ok() ? absl::StatusOr<FileInfo>(info) : status;
}

absl::Status SimObjectStore::WriteAtomically(const std::string& name,
                                             absl::string_view contents) {
  return Call(name, [&]() -> absl::Status {
    WEIR_RETURN_IF_ERROR(CheckRoom(name));
    Put(name, contents);
    return absl::OkStatus();
  });
}

absl::Status SimObjectStore::WriteNew(const std::string& name,
                                      absl::string_view contents) {
  return Call(name, [&]() -> absl::Status {
    WEIR_RETURN_IF_ERROR(CheckRoom(name));
    const auto there = objects_.find(name);
    if (there != objects_.end()) {
      return *there->second == contents
                 ? absl::OkStatus()
                 : absl::AlreadyExistsError(
                       absl::StrCat(name, ": other contents are there"));
    }
    Put(name, contents);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<ObjectWriter>> SimObjectStore::BeginWrite(
    const std::string& name, int64_t /*bytes_expected*/) {
  return std::make_unique<Writer>(this, name);
}

absl::Status SimObjectStore::Append(const std::string& name,
                                    absl::string_view /*contents*/) {
  return absl::UnimplementedError(
      absl::StrCat(name, ": an object store cannot append"));
}

absl::StatusOr<std::vector<std::string>> SimObjectStore::List(
    const std::string& directory) {
  std::vector<std::string> names;
  const absl::Status status = Call(directory, [&]() -> absl::Status {
    if (!HasBelow(directory)) {
      return absl::NotFoundError(
          absl::StrCat(directory, ": nothing is below this name"));
    }
    const std::string prefix = Below(directory);
    for (auto object = objects_.lower_bound(prefix);
         object != objects_.end() && absl::StartsWith(object->first, prefix);
         ++object) {
      const absl::string_view rest =
          absl::string_view(object->first).substr(prefix.size());
      const std::string name(rest.substr(0, rest.find('/')));
      if (name != kDirectoryMark && (names.empty() || names.back() != name)) {
        names.push_back(name);
      }
    }
    return absl::OkStatus();
  });
  if (!status.ok()) {
    return status;
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

absl::Status SimObjectStore::MakeDirectories(const std::string& /*path*/) {
  return absl::OkStatus();
}

absl::Status SimObjectStore::MakeDirectory(const std::string& path) {
  return WriteNew(Below(path) + kDirectoryMark, absl::StrCat(Random()));
}

absl::Status SimObjectStore::SyncDirectory(const std::string& /*path*/) {
  return absl::OkStatus();
}

absl::Status SimObjectStore::Remove(const std::string& name) {
  return Call(name, [&] {
    objects_.erase(name);
    objects_.erase(Below(name) + kDirectoryMark);
    OnChange(name);
    if (const std::string directory = DirectoryOf(name); !HasBelow(directory)) {
      OnChange(directory);
    }
    return absl::OkStatus();
  });
}

absl::Status SimObjectStore::DropUnfinished(const std::string& /*directory*/) {
  return absl::OkStatus();
}

}  // namespace weir::sim
