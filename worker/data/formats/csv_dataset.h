// Reads tables of comma-separated text; csv_reader.h describes the form.
//
// Empty lines are skipped. Without `column`, every column but the label's is a
// number and a feature, in order, [columns - 1]; an empty field is an error.
// With `column` only these are read, as csv_columns.h describes. Columns of
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
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "worker/data/formats/dataset.h"
#include "worker/data/input/csv_columns.h"

namespace weir {

class CsvDataset : public Dataset {
 public:
  // `source` is checked and has its defaults. Its file, named by a whole
  // path, is plain, gzip or zstd.
  // `field_path` is "data.train.csv".
  static absl::StatusOr<std::unique_ptr<Dataset>> Create(
      const CsvSource& source, const std::string& field_path);

  absl::Status ReadSample(int64_t index, float* features,
                          float* label) const override;
  absl::Status ReadSparse(int64_t index, SparseBatch* batch) const override;

 private:
  CsvDataset(const CsvSource& source, const std::string& field_path)
      : source_(source), field_path_(field_path) {}

  absl::Status Parse(const std::string& text);
  // Finds the columns in the first record of the file.
  absl::Status Begin(int64_t line, const std::vector<std::string>& fields);
  // Adds a row and returns "", or returns what is wrong with it.
  std::string AddRow(const std::vector<std::string>& fields, CsvRow* row);
  std::string AddNumbers(const std::vector<std::string>& fields);

  const CsvSource source_;
  const std::string field_path_;
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
