// Reads and writes safetensors files, in which arrays have names. The format is
// Hugging Face's.
//
// Place: shard files of a checkpoint and exported models. docs/formats.md has
// the bytes:
//   u64 LE header_bytes | header_bytes of JSON | data
//   {"__metadata__":{"k":"v"},
//    "name":{"dtype":"F32","shape":[2,3],"data_offsets":[begin,end]},...}
// Offsets count from the first data byte. Arrays are little-endian, C order.
//
// Invariants (a reader refuses a file that breaks one, before it reads data)
//   I1. The header begins with '{' and has at most 100,000,000 bytes.
//   I2. Arrays lie end to end from 0: no hole, no overlap, no byte after.
//   I3. end - begin = product(shape) * bits(dtype) / 8.
//   I4. No name occurs twice.
// The writer lays arrays in the order declared and pads the header with spaces
// to a multiple of 8: declare wide dtypes first and every array is aligned.
//
// Threads: a reader is safe; a writer has one owner.
// Errors: DATA_LOSS         the file breaks an invariant; the message has the
//                           path and says which.
//         INVALID_ARGUMENT  what is declared or appended does not fit.
//         and those of Files.
// Source: https://github.com/huggingface/safetensors, README "Format".
#ifndef COMMON_IO_SAFETENSORS_H_
#define COMMON_IO_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/object_store.h"

namespace weir {

// Bits of one element; 0 for an unknown dtype. BOOL U8 I8 F8_E5M2 F8_E4M3
// F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64
// F4 F6_E2M3 F6_E3M2.
int SafetensorsBits(const std::string& dtype);

struct SafetensorsArray {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;  // empty: a scalar
  int64_t begin = 0;           // bytes from the first data byte; the writer
  int64_t end = 0;             // fills both, so leave them when declaring

  int64_t bytes() const { return end - begin; }
  bool operator==(const SafetensorsArray&) const = default;
};

class SafetensorsReader {
 public:
  // Reads and checks the header. `store` is borrowed for the reader's life.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(
      ObjectStore* store, const std::string& path);

  // In the order of their offsets.
  const std::vector<SafetensorsArray>& arrays() const { return arrays_; }
  const std::map<std::string, std::string>& metadata() const {
    return metadata_;
  }
  int64_t file_bytes() const { return reader_->size(); }
  const std::string& path() const { return reader_->path(); }

  // nullptr if there is none. The pointer lives as long as the reader.
  const SafetensorsArray* Find(const std::string& name) const;

  // Reads bytes [offset, offset + bytes) of `array` into `data`.
  // REQUIRES: array is of this reader and the range is inside it.
  absl::Status Read(const SafetensorsArray& array, int64_t offset, void* data,
                    int64_t bytes) const;

  // Checksum of the whole file, read from front to back, 1 MiB at a time.
  absl::StatusOr<uint32_t> ReadCrc32c() const;

 private:
  SafetensorsReader() = default;

  std::unique_ptr<FileReader> reader_;
  int64_t data_begin_ = 0;  // in the file
  std::vector<SafetensorsArray> arrays_;
  std::map<std::string, int> by_name_;
  std::map<std::string, std::string> metadata_;
};

// The size and the checksum that identify a finished file.
struct FileDigest {
  int64_t bytes = 0;
  uint32_t crc32c = 0;
  bool operator==(const FileDigest&) const = default;
};

// `path` is whole or absent, and is there after Finish. A writer that is
// destroyed before that leaves nothing.
class SafetensorsWriter {
 public:
  // Writes the header. `store` is borrowed for the writer's life.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      ObjectStore* store, const std::string& path,
      std::vector<SafetensorsArray> arrays,
      const std::map<std::string, std::string>& metadata);

  // The arrays as they were declared, with their offsets.
  const std::vector<SafetensorsArray>& arrays() const { return arrays_; }

  // Appends the next bytes of the arrays, in declared order. A call may span
  // arrays.
  absl::Status Append(const void* data, int64_t bytes);

  // Makes the file visible and durable. INVALID_ARGUMENT while bytes are
  // missing. Nothing may be called after it.
  absl::StatusOr<FileDigest> Finish();

 private:
  SafetensorsWriter() = default;

  std::string path_;
  std::vector<SafetensorsArray> arrays_;
  std::unique_ptr<ObjectWriter> writer_;
  int64_t data_bytes_ = 0;      // declared
  int64_t appended_bytes_ = 0;  // of data
  FileDigest digest_;
};

}  // namespace weir

#endif  // COMMON_IO_SAFETENSORS_H_
