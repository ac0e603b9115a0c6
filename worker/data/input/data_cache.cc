#include "worker/data/input/data_cache.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "common/io/sha256.h"
#include "common/objects/any_store.h"

namespace weir {
namespace {

constexpr int64_t kCopyBytes = int64_t{1} << 20;

// A copy, under the name of what it is a copy of.
class CopyReader : public FileReader {
 public:
  CopyReader(std::unique_ptr<FileReader> copy, std::string path)
      : copy_(std::move(copy)), path_(std::move(path)) {}
  int64_t size() const override { return copy_->size(); }
  const std::string& path() const override { return path_; }
  absl::Status ReadAt(int64_t offset, void* data, size_t bytes) override {
    return copy_->ReadAt(offset, data, bytes);
  }

 private:
  const std::unique_ptr<FileReader> copy_;
  const std::string path_;
};

// Copies the object. What the disk has against it goes to `kept`.
absl::Status Copy(FileReader* from, Files* files, const std::string& to,
                  absl::Status* kept) {
  std::unique_ptr<ObjectWriter> writer;
  *kept = files->MakeDirectories(DirectoryOf(to));
  if (kept->ok()) {
    auto begun = files->BeginWrite(to, from->size());
    *kept = begun.status();
    writer = begun.ok() ? *std::move(begun) : nullptr;
  }
  std::vector<char> piece(
      static_cast<size_t>(std::min(kCopyBytes, from->size())));
  for (int64_t at = 0; at < from->size() && kept->ok(); at += kCopyBytes) {
    const auto bytes =
        static_cast<size_t>(std::min(kCopyBytes, from->size() - at));
    WEIR_RETURN_IF_ERROR(from->ReadAt(at, piece.data(), bytes));
    *kept = writer->Append(piece.data(), bytes);
  }
  if (kept->ok()) {
    *kept = writer->Finish();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileReader>> OpenData(const std::string& path) {
  return OpenData(AnyStore(), Files::Real(),
                  ProcessEnvironment("WEIR_DATA_CACHE").value_or(""), path);
}

absl::StatusOr<std::unique_ptr<FileReader>> OpenData(
    ObjectStore* store, Files* files, const std::string& directory,
    const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<FileReader> object, store->Open(path));
  const std::string version = object->version();
  if (!IsObjectUrl(path) || directory.empty() || version.empty()) {
    return object;
  }
  const std::string name =
      JoinPath(directory, Sha256Hex(absl::StrCat(path, "\n", version)));
  auto copy = files->Open(name);
  if (!copy.ok() || (*copy)->size() != object->size()) {
    absl::Status kept;
    WEIR_RETURN_IF_ERROR(Copy(object.get(), files, name, &kept));
    copy = kept.ok() ? files->Open(name) : kept;
  }
  if (!copy.ok()) {
    LOG_WARN("{} is not kept in WEIR_DATA_CACHE: {}", path,
             std::string(copy.status().message()));
    return object;
  }
  return std::make_unique<CopyReader>(*std::move(copy), path);
}

}  // namespace weir
