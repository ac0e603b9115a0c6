// The objects of a bucket: an ObjectStore by S3's protocol.
//
// A directory is what the names of objects say. One that MakeDirectory made is
// there by an object ".directory" in it, which lists leave out.
//
// A writer sends its object in parts while it is written, and holds kPartsHeld
// of them, that which it fills among them; so a ps that writes a shard needs
// kPartsHeld * kPartBytes for it, whatever its size. Objects of more than
// kPartsMax parts have larger ones.
//
// Threads: safe.
// Errors: those of ObjectStore.
// Source: Amazon S3 API Reference; Amazon S3 User Guide, "Uploading and copying
//   objects using multipart upload", "Conditional writes".
#ifndef COMMON_OBJECTS_S3_STORE_H_
#define COMMON_OBJECTS_S3_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/object_store.h"
#include "common/objects/chunk_cache.h"
#include "common/objects/s3_client.h"

namespace weir {

class S3Store : public ObjectStore {
 public:
  // A store takes parts of 5 MiB and more, but for the last one.
  static constexpr int64_t kPartBytes = int64_t{5} << 20;
  static constexpr int kPartsHeld = 4;
  static constexpr int64_t kPartsMax = 10000;

  // `client` is borrowed, also by readers and writers, which
  // end before the store. Names begin with
  // "s3://<its bucket>/".
  explicit S3Store(S3Client* client) : client_(client) {}

  absl::StatusOr<std::unique_ptr<FileReader>> Open(
      const std::string& name) override;
  absl::StatusOr<std::string> ReadAll(const std::string& name) override;
  absl::StatusOr<FileInfo> Stat(const std::string& name) override;
  absl::Status WriteAtomically(const std::string& name,
                               absl::string_view contents) override;
  absl::Status WriteNew(const std::string& name,
                        absl::string_view contents) override;
  absl::StatusOr<std::unique_ptr<ObjectWriter>> BeginWrite(
      const std::string& name, int64_t bytes_expected) override;
  absl::Status Append(const std::string& name,
                      absl::string_view contents) override;
  // NOT_FOUND if there is no object below it.
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& directory) override;
  absl::Status MakeDirectories(const std::string& path) override;
  absl::Status MakeDirectory(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::Status Remove(const std::string& name) override;
  absl::Status DropUnfinished(const std::string& directory) override;

 private:
  // The key of an object; INVALID_ARGUMENT if the name is no URL of the bucket,
  // or one that is not the only name of its object.
  absl::StatusOr<std::string> KeyOf(absl::string_view name) const;
  // The same for a directory, with a slash at the end; "" is the whole bucket.
  absl::StatusOr<std::string> PrefixOf(absl::string_view directory) const;
  absl::Status Delete(const std::string& key);

  S3Client* const client_;
  ChunkCache cache_;  // of its readers
};

}  // namespace weir

#endif  // COMMON_OBJECTS_S3_STORE_H_
