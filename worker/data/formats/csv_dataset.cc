#include "worker/data/formats/csv_dataset.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/data/input/bad_lines.h"
#include "worker/data/input/csv_reader.h"
#include "worker/data/input/input_file.h"

namespace weir {

absl::Status CsvDataset::Begin(int64_t line,
                               const std::vector<std::string>& fields) {
  column_count_ = std::ssize(fields);
  if (column_count_ < 2) {
    return Annotate(
        LineError(
            source_.path(), line,
            absl::StrCat("one column: a label and at least one feature, "
                         "separated by ",
                         QuoteInput(source_.separator()), ", are needed")),
        field_path_ + ".path");
  }
  if (source_.label_column() >= column_count_) {
    return Invalid(field_path_, ".label_column: ", source_.label_column(),
                   ", but ", source_.path(), " has columns 0 to ",
                   column_count_ - 1);
  }
  if (source_.column().empty()) {
    return absl::OkStatus();
  }
  std::vector<std::string> header;
  if (source_.header()) {
    for (const std::string& field : fields) {
      header.emplace_back(absl::StripAsciiWhitespace(field));
    }
  }
  absl::StatusOr<CsvColumns> columns =
      CsvColumns::Create(source_, column_count_, header);
  if (!columns.ok()) {
    return Invalid(field_path_, ".", columns.status().message(), " (",
                   source_.path(), ")");
  }
  columns_ = *std::move(columns);
  set_sparse_features(columns_->id_names());
  return absl::OkStatus();
}

// Without `columns`. On failure nothing is added.
std::string CsvDataset::AddNumbers(const std::vector<std::string>& fields) {
  const size_t old_size = features_.size();
  float label = 0.0f;
  for (int64_t column = 0; column < column_count_; ++column) {
    float value = 0.0f;
    if (!ParseFinite(absl::StripAsciiWhitespace(fields[column]), &value)) {
      features_.resize(old_size);
      // The usual reason for words in the first line.
      std::string advice;
      if (labels_.empty() && !source_.header()) {
        advice = "; if this line has names, set header: true";
      }
      return absl::StrCat("column ", column, ": ", QuoteInput(fields[column]),
                          " is not a finite number", advice);
    }
    if (column == source_.label_column()) {
      label = value;
    } else {
      features_.push_back(value);
    }
  }
  labels_.push_back(label);
  return "";
}

std::string CsvDataset::AddRow(const std::vector<std::string>& fields,
                               CsvRow* row) {
  if (std::ssize(fields) != column_count_) {
    return absl::StrCat(fields.size(), " columns, the lines before have ",
                        column_count_);
  }
  if (!columns_.has_value()) {
    return AddNumbers(fields);
  }
  float label = 0.0f;
  const std::string& label_field = fields[source_.label_column()];
  if (!ParseFinite(absl::StripAsciiWhitespace(label_field), &label)) {
    return absl::StrCat("column ", source_.label_column(),
                        ", the label: ", QuoteInput(label_field),
                        " is not a finite number");
  }
  // Everything is parsed before anything is added: a bad line leaves no trace.
  std::string wrong = columns_->Parse(fields, row);
  if (!wrong.empty()) {
    return wrong;
  }
  labels_.push_back(label);
  features_.insert(features_.end(), row->numbers.begin(), row->numbers.end());
  row_begin_.push_back(std::ssize(ids_));
  ids_.insert(ids_.end(), row->ids.begin(), row->ids.end());
  bag_counts_.insert(bag_counts_.end(), row->bag_counts.begin(),
                     row->bag_counts.end());
  return "";
}

absl::Status CsvDataset::Parse(const std::string& text) {
  const std::string field = field_path_ + ".path";
  BadLines bad_lines(source_.path(), source_.max_bad_lines());
  CsvReader reader(text, source_.separator()[0]);
  std::vector<std::string> fields;
  CsvRow row;
  while (!reader.AtEnd()) {
    std::string wrong(reader.Next(&fields));
    if (wrong.empty()) {
      if (fields.size() == 1 && absl::StripAsciiWhitespace(fields[0]).empty()) {
        continue;
      }
      if (column_count_ == 0) {
        WEIR_RETURN_IF_ERROR(Begin(reader.line(), fields));
        if (source_.header()) {
          continue;
        }
      }
      wrong = AddRow(fields, &row);
    } else if (column_count_ == 0) {
      // The first line says what the others must have: it cannot be left out.
      return Annotate(LineError(source_.path(), reader.line(), wrong), field);
    }
    if (!wrong.empty()) {
      WEIR_RETURN_IF_ERROR(
          Annotate(bad_lines.Add(reader.line(), wrong), field));
    }
  }
  bad_lines.Report();
  if (labels_.empty()) {
    return Invalid(field, ": ", source_.path(), ": has no rows");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Dataset>> CsvDataset::Create(
    const CsvSource& source, const std::string& field_path) {
  const absl::StatusOr<std::string> text = ReadInputFile(source.path());
  if (!text.ok()) {
    return Annotate(text.status(), field_path + ".path");
  }
  auto dataset =
      std::unique_ptr<CsvDataset>(new CsvDataset(source, field_path));
  WEIR_RETURN_IF_ERROR(dataset->Parse(*text));
  int64_t features = dataset->column_count_ - 1;  // all but the label
  if (dataset->columns_.has_value()) {
    features = dataset->columns_->number_count();
  }
  dataset->SetShape(std::ssize(dataset->labels_), {features});
  return std::unique_ptr<Dataset>(std::move(dataset));
}

absl::Status CsvDataset::ReadSample(int64_t index, float* features,
                                    float* label) const {
  const int64_t width = feature_elements();
  std::copy_n(features_.data() + index * width, width, features);
  *label = labels_[index];
  return absl::OkStatus();
}

absl::Status CsvDataset::ReadSparse(int64_t index, SparseBatch* batch) const {
  const int64_t width = std::ssize(sparse_features());
  if (width == 0) {
    return absl::OkStatus();
  }
  // Where a row's ids begin is kept, where its bags do is summed up here: rows
  // have few bags, and their counts take 2 bytes in place of 8.
  const uint16_t* const counts = bag_counts_.data() + index * width;
  auto id = ids_.begin() + row_begin_[index];
  for (int64_t f = 0; f < width; ++f) {
    SparseFeature& feature = batch->features[f];
    feature.ids.insert(feature.ids.end(), id, id + counts[f]);
    feature.EndBag();
    id += counts[f];
  }
  return absl::OkStatus();
}

}  // namespace weir
