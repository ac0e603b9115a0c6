// Tables of numbers as comma-separated text.
//
// RFC 4180: fields may be quoted, a quote inside is doubled, lines end with LF
// or CRLF. Blanks around a number, empty lines and a byte order mark are
// skipped. Features are every column but the label's, in order, [columns - 1].
//
// Cost: 4 bytes a field. Threads: safe after Create. Errors: see dataset.h.
#ifndef WORKER_DATA_CSV_DATASET_H_
#define WORKER_DATA_CSV_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace weir {

class CsvDataset : public Dataset {
 public:
  struct Options {
    std::string path;  // plain, gzip or zstd
    bool header = false;
    int64_t label_column = 0;  // counted from 0
    std::string field_path;    // "data.train.csv"
  };

  static absl::StatusOr<std::unique_ptr<Dataset>> Create(
      const Options& options);

  absl::Status ReadSample(int64_t index, float* features,
                          float* label) const override;

 private:
  CsvDataset() = default;

  absl::Status Parse(const Options& options, const std::string& text);
  absl::Status AddRow(const Options& options, int64_t line,
                      const std::vector<std::string>& fields);

  int64_t column_count_ = 0;     // 0 until the first record
  std::vector<float> features_;  // [size, columns - 1]
  std::vector<float> labels_;    // [size]
};

}  // namespace weir

#endif  // WORKER_DATA_CSV_DATASET_H_
