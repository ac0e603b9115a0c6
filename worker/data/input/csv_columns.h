// Says what the columns of a CSV file are, and makes values of a row's fields.
//
// Place: CsvDataset uses it. The columns are those of the JobSpec's CsvSource.
//
// A numeric field x becomes sign(x) log(1 + |x|) if `log` is set, and then
// (x - mean) / stddev. With boundaries the result is replaced by the number of
// boundaries that are <= it, as the only id of a bag. An empty field is read as
// 0. Blanks around a number are skipped.
// A categorical field becomes a bag with one id for each value: the FeatureHash
// of the column's number and the value's bytes, or with `integer` the whole
// number itself. The id is taken modulo hash_buckets where that is > 0. Empty
// values give no id.
//
// Threads: compatible.
#ifndef WORKER_DATA_INPUT_CSV_COLUMNS_H_
#define WORKER_DATA_INPUT_CSV_COLUMNS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job_spec.pb.h"

namespace weir {

// One row: a number or a bag for each column, each kind in the columns' order.
struct CsvRow {
  std::vector<float> numbers;
  std::vector<uint64_t> ids;         // bags end to end
  std::vector<uint16_t> bag_counts;  // ids of each bag
};

class CsvColumns {
 public:
  static constexpr int64_t kBagMax = 65535;

  // Finds the columns of `source` in a file with `column_count` columns, whose
  // names are `header` unless that is empty. None of them may be the label's.
  // Errors: INVALID_ARGUMENT "column[2].name: ...".
  static absl::StatusOr<CsvColumns> Create(
      const CsvSource& source, int64_t column_count,
      const std::vector<std::string>& header);

  int64_t number_count() const { return number_count_; }
  // The names of the columns that give ids: that of the options, else that of
  // the header, else "column<index>".
  const std::vector<std::string>& id_names() const { return id_names_; }

  // Makes *row from the fields of a record. Returns "", or what is wrong and in
  // which column; *row is then undefined. REQUIRES: as many fields as the file
  // has columns.
  std::string Parse(const std::vector<std::string>& fields, CsvRow* row) const;

 private:
  struct Found {
    CsvColumn options;
    int64_t index = 0;
    std::string header;  // empty where the file has none
  };

  CsvColumns() = default;
  static std::string ParseNumber(const NumericColumn& options,
                                 absl::string_view field, CsvRow* row);
  static std::string ParseBag(const Found& column, absl::string_view field,
                              CsvRow* row);

  std::vector<Found> columns_;
  int64_t number_count_ = 0;
  std::vector<std::string> id_names_;
};

}  // namespace weir

#endif  // WORKER_DATA_INPUT_CSV_COLUMNS_H_
