// Reads ranges of one version of one object, out of the store's chunks.
//
// Threads: safe.
// Errors: those of FileReader and ObjectStore. DATA_LOSS if the object was
//   replaced.
#ifndef COMMON_OBJECTS_S3_READER_H_
#define COMMON_OBJECTS_S3_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/io/object_store.h"
#include "common/objects/chunk_cache.h"
#include "common/objects/s3_client.h"

namespace weir {

class S3Reader : public FileReader {
 public:
  // `version` is the ETag that the object had when it was opened. Borrows
  // client and cache.
  S3Reader(S3Client* client, ChunkCache* cache, std::string key, int64_t bytes,
           std::string version);
  ~S3Reader() override { cache_->RemoveObject(object_); }
  S3Reader(const S3Reader&) = delete;
  S3Reader& operator=(const S3Reader&) = delete;

  int64_t size() const override { return bytes_; }
  const std::string& path() const override { return path_; }
  std::string version() const override { return version_; }
  absl::Status ReadAt(int64_t offset, void* data, size_t bytes) override;

 private:
  absl::Status Fetch(int64_t offset, char* data, int64_t bytes) const;

  S3Client* const client_;
  ChunkCache* const cache_;
  const std::string key_;
  const std::string path_;
  const int64_t bytes_;
  const std::string version_;
  const int64_t object_;  // the cache's number
};

}  // namespace weir

#endif  // COMMON_OBJECTS_S3_READER_H_
