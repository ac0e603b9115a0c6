#include "common/io/object_store.h"

#include "absl/strings/str_cat.h"
#include "common/base/identity.h"
#include "common/base/status.h"

namespace weir {

absl::StatusOr<bool> ObjectStore::Exists(const std::string& name) {
  const absl::StatusOr<FileInfo> info = Stat(name);
  if (info.ok() || absl::IsNotFound(info.status())) {
    return info.ok();
  }
  return info.status();
}

absl::StatusOr<std::unique_ptr<HeldLock>> ObjectStore::TryLock(
    const std::string& name, const std::string& /*who*/) {
  return absl::UnimplementedError(
      absl::StrCat(name, ": an object store has no locks"));
}

absl::Status CheckWriteNew(ObjectStore* store, const std::string& directory) {
  const std::string name = absl::StrCat(directory, "/probe-", RandomHex(16));
  WEIR_RETURN_IF_ERROR(store->WriteNew(name, "first"));
  const absl::Status second = store->WriteNew(name, "second");
  WEIR_RETURN_IF_ERROR(store->Remove(name));
  if (second.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory,
        ": this store writes an object over one that is there, though it was "
        "asked not to: two chiefs could spoil each other's checkpoints"));
  }
  return absl::IsAlreadyExists(second) ? absl::OkStatus() : second;
}

}  // namespace weir
