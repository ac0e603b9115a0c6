// Reads tables of comma-separated text; csv_reader.h describes the form.
//
// Empty lines are skipped. Without `columns`, every column but the label's is a
// number and a feature, in order, [columns - 1]; an empty field is an error.
// With `columns` only these are read, as csv_columns.h describes. Columns of
// numbers are the features, {0} where there is none; the others are the
// categorical features.
//
// A line is bad if it has another number of fields than the first one, or a
// field that does not fit its column. Up to max_bad_lines of them are left out.
//
// Cost: 4 bytes for each number, 8 for each id, 2 for each bag, 8 for each row.
// Threads: safe after Create. Errors: see dataset.h.
#ifndef WORKER_DATA_FORMATS_CSV_DATASET_H_
#define WORKER_DATA_FORMATS_CSV_DATASET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/formats/dataset.h"
#include "worker/data/input/csv_columns.h"

namespace weir {

class CsvDataset : public Dataset {
 public:
  struct Options {
    std::string path;  // plain, gzip or zstd
    bool header = false;
    int64_t label_column = 0;  // counted from 0
    std::vector<CsvColumnOptions> columns;
    char separator = ',';
    uint64_t max_bad_lines = 0;
    std::string field_path;  // "data.train.csv"
  };

  static absl::StatusOr<std::unique_ptr<Dataset>> Create(
      const Options& options);

  absl::Status ReadSample(int64_t index, float* features,
                          float* label) const override;
  absl::Status ReadSparse(int64_t index, SparseBatch* batch) const override;

 private:
  explicit CsvDataset(Options options) : options_(std::move(options)) {}

  absl::Status Parse(const std::string& text);
  // Finds the columns in the first record of the file.
  absl::Status Begin(int64_t line, const std::vector<std::string>& fields);
  // Adds a row and returns "", or returns what is wrong with it.
  std::string AddRow(const std::vector<std::string>& fields, CsvRow* row);
  std::string AddNumbers(const std::vector<std::string>& fields);

  const Options options_;
  int64_t column_count_ = 0;  // 0 until the first record
  std::optional<CsvColumns> columns_;
  std::vector<float> features_;  // [size, feature_elements]
  std::vector<float> labels_;    // [size]
  // The categorical features, row by row.
  std::vector<uint64_t> ids_;
  std::vector<uint16_t> bag_counts_;  // [size, sparse_features]
  std::vector<int64_t> row_begin_;    // [size], into ids_
};

}  // namespace weir

#endif  // WORKER_DATA_FORMATS_CSV_DATASET_H_
