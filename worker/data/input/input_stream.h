// A file's bytes from front to end, unpacked on the way.
//
// Place: under ReadInputFile and readers of files that are larger than memory
//   should hold as text.
//
// What begins as a gzip or zstd file is unpacked; members and frames may follow
// one another. A file called ".zst" that does not begin so is damaged.
//
// Threads: compatible.
// Errors: NOT_FOUND  no such file; DATA_LOSS  what is packed is cut or damaged.
// Source: RFC 1952 (gzip), RFC 8878 (zstd).
#ifndef WORKER_DATA_INPUT_INPUT_STREAM_H_
#define WORKER_DATA_INPUT_INPUT_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace weir {

class InputStream {
 public:
  static absl::StatusOr<std::unique_ptr<InputStream>> Open(
      const std::string& path);

  virtual ~InputStream() = default;
  InputStream(const InputStream&) = delete;
  InputStream& operator=(const InputStream&) = delete;

  // Of the file as it lies on the disk.
  int64_t file_bytes() const { return file_bytes_; }

  // Fills data[0, bytes) with what comes next. Returns how many bytes, fewer
  // only at the end, which is known to be whole only then.
  virtual absl::StatusOr<size_t> Read(char* data, size_t bytes) = 0;

 protected:
  explicit InputStream(int64_t file_bytes) : file_bytes_(file_bytes) {}

 private:
  const int64_t file_bytes_;
};

}  // namespace weir

#endif  // WORKER_DATA_INPUT_INPUT_STREAM_H_
