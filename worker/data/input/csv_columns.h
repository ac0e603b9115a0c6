// What the columns of a CSV file are, and a row's values under it.
//
// Place: CsvDataset; the JobSpec's CsvColumn says the same.
//
// A numeric field x becomes sign(x) log(1 + |x|) if `log`, then (x - mean) /
// stddev; with boundaries the number of those that are <= it, as the only id of
// a bag. An empty one is read as 0. Blanks around a number are skipped.
// A categorical field becomes a bag with an id of each value: the FeatureHash
// of the column's number and the value's bytes, or the whole number that it is;
// modulo hash_buckets where that is > 0. Empty values give no id.
//
// Threads: compatible.
#ifndef WORKER_DATA_INPUT_CSV_COLUMNS_H_
#define WORKER_DATA_INPUT_CSV_COLUMNS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weir {

struct CsvColumnOptions {
  // Where it is: `index`, counted from 0, or the header's column `name`. With
  // both the name is the feature's alone.
  std::string name;
  std::optional<int64_t> index;
  bool categorical = false;  // else numeric

  // Of numeric columns.
  bool log = false;
  double mean = 0.0;
  double stddev = 1.0;
  std::vector<double> boundaries;  // ascending

  // Of categorical ones.
  std::optional<char> value_separator;
  bool integer = false;
  uint64_t hash_buckets = 0;

  bool GivesIds() const { return categorical || !boundaries.empty(); }
};

// One row: a number or a bag a column, each kind in the columns' order.
struct CsvRow {
  std::vector<float> numbers;
  std::vector<uint64_t> ids;         // bags end to end
  std::vector<uint16_t> bag_counts;  // ids of each bag
};

class CsvColumns {
 public:
  static constexpr int64_t kBagMax = 65535;

  // Finds the columns in a file with `column_count` columns, called `header`
  // unless that is empty. The label's is not among them.
  // Errors: INVALID_ARGUMENT "column[2].name: ...".
  static absl::StatusOr<CsvColumns> Create(
      std::vector<CsvColumnOptions> columns, int64_t column_count,
      const std::vector<std::string>& header, int64_t label_column);

  int64_t number_count() const { return number_count_; }
  // Of the columns that give ids: the name given, else the header's, else
  // "column<index>".
  const std::vector<std::string>& id_names() const { return id_names_; }

  // Makes *row of a record's fields, as many as the file has columns. Returns
  // what is wrong, with the column, or nothing; *row is then undefined.
  std::string Parse(const std::vector<std::string>& fields, CsvRow* row) const;

 private:
  struct Found {
    CsvColumnOptions options;
    int64_t index = 0;
    std::string header;  // empty where the file has none
  };

  CsvColumns() = default;
  static std::string ParseNumber(const CsvColumnOptions& options,
                                 absl::string_view field, CsvRow* row);
  static std::string ParseBag(const Found& column, absl::string_view field,
                              CsvRow* row);

  std::vector<Found> columns_;
  int64_t number_count_ = 0;
  std::vector<std::string> id_names_;
};

}  // namespace weir

#endif  // WORKER_DATA_INPUT_CSV_COLUMNS_H_
