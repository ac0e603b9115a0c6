// Reads sparse rows of text, one a line: "label index:value ... # comment".
//
// Rows are kept sparse. A sample is made dense, [feature_count], when it is
// read.
//
// Invariants
//   I1. Indices ascend inside a row. A "qid:n" behind the label is ignored, and
//       so are empty lines.
//   I2. Labels that are all -1 or 1, with a -1 among them, become 0 and 1.
//   I3. With base AUTO indices are one-based unless an index 0 occurs in this
//       file. A file that is a part of another one must be given its base.
// Cost: 8 bytes for each value that is written in the file.
// Threads: safe after Create. Errors: see dataset.h.
// Source: Chang and Lin, "LIBSVM: A Library for Support Vector Machines",
//         README, "svm-train".
#ifndef WORKER_DATA_FORMATS_LIBSVM_DATASET_H_
#define WORKER_DATA_FORMATS_LIBSVM_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/data/formats/dataset.h"

namespace weir {

class LibsvmDataset : public Dataset {
 public:
  // `source` is checked and has its defaults. Its file, named by a whole
  // path, is plain, gzip or zstd.
  // `field_path` is "data.train.libsvm".
  static absl::StatusOr<std::unique_ptr<Dataset>> Create(
      const LibsvmSource& source, const std::string& field_path);

  absl::Status ReadSample(int64_t index, float* features,
                          float* label) const override;

 private:
  LibsvmDataset() = default;

  struct Entry {
    uint32_t index = 0;  // zero-based
    float value = 0.0f;
  };
  std::vector<int64_t> row_begin_;  // [size + 1], into entries_
  std::vector<Entry> entries_;
  std::vector<float> labels_;

  class Parser;
};

}  // namespace weir

#endif  // WORKER_DATA_FORMATS_LIBSVM_DATASET_H_
