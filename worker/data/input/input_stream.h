// Reads a file from front to end, and unpacks it on the way.
//
// Place: ReadInputFile uses it, and so do readers of files whose text is too
//   large for memory.
//
// A file that begins as gzip or zstd files do is unpacked. Members and frames
// may follow one another. A file called ".zst" that does not begin so is
// damaged.
//
// Invariants
//   I1. A packed file gives at most UnpackedBytesMax bytes.
// Threads: compatible.
// Errors: NOT_FOUND           no such file.
//         DATA_LOSS           a packed file is cut or damaged.
//         INVALID_ARGUMENT    a packed file would give more than I1 allows, or
//                             is no regular file.
//         RESOURCE_EXHAUSTED  no memory to unpack it.
// Source: RFC 1952 (gzip), RFC 8878 (zstd).
#ifndef WORKER_DATA_INPUT_INPUT_STREAM_H_
#define WORKER_DATA_INPUT_INPUT_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace weir {

// How many bytes a packed file of `file_bytes` may unpack to; see
// kUnpackedRatioMax.
int64_t UnpackedBytesMax(int64_t file_bytes);

class InputStream {
 public:
  // `unpacked_max` is the bound of I1; 0: UnpackedBytesMax of the file.
  static absl::StatusOr<std::unique_ptr<InputStream>> Open(
      const std::string& path, int64_t unpacked_max = 0);

  virtual ~InputStream() = default;
  InputStream(const InputStream&) = delete;
  InputStream& operator=(const InputStream&) = delete;

  // The size of the file on the disk, packed or not.
  int64_t file_bytes() const { return file_bytes_; }

  // Fills data[0, bytes) with the next bytes. Returns how many: fewer than
  // `bytes` only at the end. Only then is it known that the file is whole.
  absl::StatusOr<size_t> Read(char* data, size_t bytes);

 protected:
  explicit InputStream(int64_t file_bytes) : file_bytes_(file_bytes) {}

 private:
  // As Read, without its bound.
  virtual absl::StatusOr<size_t> Unpack(char* data, size_t bytes) = 0;

  const int64_t file_bytes_;
  std::string path_;
  size_t left_ = SIZE_MAX;  // bytes that Read may still give
};

}  // namespace weir

#endif  // WORKER_DATA_INPUT_INPUT_STREAM_H_
