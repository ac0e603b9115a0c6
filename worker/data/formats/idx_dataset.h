// Reads images and labels from two IDX files, the form of MNIST.
//
// Terms
//   IDX  00 00 type count-of-dimensions, then each dimension as a big-endian
//        32-bit number, then the values, row-major. Types read here: 08 bytes
//        and 0D big-endian floats. See docs/formats.md.
//
// Features: a file with [samples, rows, cols] gives [1, rows, cols]. A file
//   with four dimensions gives its last three (channels, rows, cols), and one
//   with two gives [1, cols]. Bytes are scaled by 1/255 first, floats are taken
//   as they are. The value is then (x - mean) / stddev.
// Cost: as much memory as the values take in the file.
// Threads: safe after Create. Errors: see dataset.h.
// Source: yann.lecun.com/exdb/mnist, "The IDX file format".
#ifndef WORKER_DATA_FORMATS_IDX_DATASET_H_
#define WORKER_DATA_FORMATS_IDX_DATASET_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/data/formats/dataset.h"

namespace weir {

class IdxDataset : public Dataset {
 public:
  // `source` is checked and has its defaults. Its files, named by whole
  // paths, are plain, gzip or zstd.
  // `field_path` is "data.train.idx".
  static absl::StatusOr<std::unique_ptr<Dataset>> Create(
      const IdxSource& source, const std::string& field_path);

  absl::Status ReadSample(int64_t index, float* features,
                          float* label) const override;
  const float* value_of_byte() const override {
    return floats_.empty() ? value_of_byte_.data() : nullptr;
  }
  void ReadBytes(int64_t index, uint8_t* bytes, float* label) const override;

 private:
  IdxDataset() = default;

  // The images: exactly one of the two is used.
  std::string bytes_;          // the file, header included
  std::vector<float> floats_;  // normalised
  size_t payload_ = 0;         // first byte of the first image in bytes_
  std::array<float, 256> value_of_byte_ = {};
  std::vector<float> labels_;
};

}  // namespace weir

#endif  // WORKER_DATA_FORMATS_IDX_DATASET_H_
