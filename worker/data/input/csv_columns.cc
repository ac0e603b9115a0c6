#include "worker/data/input/csv_columns.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "worker/data/input/feature_hash.h"
#include "worker/data/input/input_file.h"

namespace weir {
namespace {

// Finds the column that `options` names.
absl::StatusOr<int64_t> Locate(const CsvColumn& options, int64_t column_count,
                               const std::vector<std::string>& header) {
  if (options.has_index()) {
    if (options.index() >= column_count) {
      return Invalid("index: ", options.index(),
                     ", but the file has columns 0 to ", column_count - 1);
    }
    return options.index();
  }
  if (header.empty()) {
    return absl::InvalidArgumentError(
        "name: the file has no header; set csv.header or the index");
  }
  // A name that occurs twice would silently take the wrong one.
  const auto count = std::count(header.begin(), header.end(), options.name());
  if (count != 1) {
    return Invalid(
        "name: ", QuoteInput(options.name()), " is ", count,
        " times in the header, which has ",
        absl::StrJoin(header, ", ", [](std::string* out, const auto& name) {
          absl::StrAppend(out, QuoteInput(name));
        }));
  }
  return std::find(header.begin(), header.end(), options.name()) -
         header.begin();
}

// The name of a column that gives ids; see CsvColumns::id_names.
std::string IdNameOf(const CsvColumn& options, const std::string& header,
                     int64_t index) {
  if (!options.name().empty()) {
    return options.name();
  }
  if (!header.empty()) {
    return header;
  }
  return absl::StrCat("column", index);
}

// Takes the first value off a bag's field.
absl::string_view TakeValue(absl::string_view* field,
                            const std::string& separator) {
  size_t end = field->size();
  if (!separator.empty()) {
    end = std::min(field->find(separator[0]), end);
  }
  const absl::string_view value = field->substr(0, end);
  field->remove_prefix(std::min(end + 1, field->size()));
  return value;
}

}  // namespace

absl::StatusOr<CsvColumns> CsvColumns::Create(
    const CsvSource& source, int64_t column_count,
    const std::vector<std::string>& header) {
  CsvColumns result;
  for (const CsvColumn& options : source.column()) {
    const std::string path =
        absl::StrCat("column[", result.columns_.size(), "]");
    const absl::StatusOr<int64_t> index = Locate(options, column_count, header);
    if (!index.ok()) {
      return Invalid(path, ".", index.status().message());
    }
    if (*index == source.label_column()) {
      return Invalid(path, ": is the label's column, ", *index);
    }
    Found found;
    found.index = *index;
    if (!header.empty()) {
      found.header = header[*index];
    }
    if (options.has_categorical() || options.numeric().boundary_size() > 0) {
      std::string name = IdNameOf(options, found.header, *index);
      std::vector<std::string>& names = result.id_names_;
      if (std::find(names.begin(), names.end(), name) != names.end()) {
        return Invalid(path, ".name: ", QuoteInput(name),
                       " is another feature's name already");
      }
      names.push_back(std::move(name));
    } else {
      ++result.number_count_;
    }
    found.options = options;
    result.columns_.push_back(std::move(found));
  }
  return result;
}

std::string CsvColumns::ParseNumber(const NumericColumn& options,
                                    absl::string_view field, CsvRow* row) {
  field = absl::StripAsciiWhitespace(field);
  double x = 0.0;
  if (!field.empty() && !ParseFinite(field, &x)) {
    return absl::StrCat(QuoteInput(field), " is not a finite number");
  }
  // log(1 + |x|) with x's sign: counts are spread evenly, and 0 stays 0.
  if (options.log()) {
    x = std::copysign(std::log1p(std::abs(x)), x);
  }
  x -= options.mean();
  if (options.has_stddev()) {
    x /= options.stddev();
  }
  const auto& boundaries = options.boundary();
  if (!boundaries.empty()) {
    row->ids.push_back(static_cast<uint64_t>(
        std::upper_bound(boundaries.begin(), boundaries.end(), x) -
        boundaries.begin()));
    row->bag_counts.push_back(1);
    return "";
  }
  // The negation also catches NaN.
  if (!(std::abs(x) <= std::numeric_limits<float>::max())) {
    return absl::StrCat(QuoteInput(field), " becomes ", x,
                        ", which is no finite float32");
  }
  row->numbers.push_back(static_cast<float>(x));
  return "";
}

std::string CsvColumns::ParseBag(const Found& column, absl::string_view field,
                                 CsvRow* row) {
  const CategoricalColumn& options = column.options.categorical();
  const size_t begin = row->ids.size();
  while (!field.empty()) {
    absl::string_view value = TakeValue(&field, options.value_separator());
    uint64_t id = 0;
    if (options.integer()) {
      value = absl::StripAsciiWhitespace(value);
      const char* const value_end = value.data() + value.size();
      const auto result = std::from_chars(value.data(), value_end, id);
      if (!value.empty() &&
          (result.ec != std::errc() || result.ptr != value_end)) {
        return absl::StrCat(QuoteInput(value),
                            " is not a whole number from 0 to 2^64 - 1");
      }
    } else {
      // With the column's number in the hash, equal values of two columns are
      // two rows of a table that both share.
      id = FeatureHash(static_cast<uint64_t>(column.index), value);
    }
    if (!value.empty()) {
      row->ids.push_back(BucketOf(id, options.hash_buckets()));
    }
  }
  // bag_counts has 16 bits.
  const size_t count = row->ids.size() - begin;
  if (count > kBagMax) {
    return absl::StrCat(count, " values, more than ", kBagMax);
  }
  row->bag_counts.push_back(static_cast<uint16_t>(count));
  return "";
}

std::string CsvColumns::Parse(const std::vector<std::string>& fields,
                              CsvRow* row) const {
  row->numbers.clear();
  row->ids.clear();
  row->bag_counts.clear();
  for (const Found& column : columns_) {
    const std::string& field = fields[column.index];
    std::string wrong;
    if (column.options.has_categorical()) {
      wrong = ParseBag(column, field, row);
    } else {
      wrong = ParseNumber(column.options.numeric(), field, row);
    }
    if (!wrong.empty()) {
      std::string where = absl::StrCat("column ", column.index);
      if (!column.header.empty()) {
        absl::StrAppend(&where, ", ", QuoteInput(column.header));
      }
      return absl::StrCat(where, ": ", wrong);
    }
  }
  return "";
}

}  // namespace weir
