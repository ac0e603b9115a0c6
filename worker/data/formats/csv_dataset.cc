#include "worker/data/formats/csv_dataset.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
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
            options_.path, line,
            absl::StrCat("one column: a label and at least one feature, "
                         "separated by ",
                         QuoteInput({&options_.separator, 1}), ", are needed")),
        options_.field_path + ".path");
  }
  if (options_.label_column >= column_count_) {
    return absl::InvalidArgumentError(absl::StrCat(
        options_.field_path, ".label_column: ", options_.label_column, ", but ",
        options_.path, " has columns 0 to ", column_count_ - 1));
  }
  if (options_.columns.empty()) {
    return absl::OkStatus();
  }
  std::vector<std::string> header;
  if (options_.header) {
    for (const std::string& field : fields) {
      header.emplace_back(absl::StripAsciiWhitespace(field));
    }
  }
  absl::StatusOr<CsvColumns> columns = CsvColumns::Create(
      options_.columns, column_count_, header, options_.label_column);
  if (!columns.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(options_.field_path, ".",
                                                   columns.status().message(),
                                                   " (", options_.path, ")"));
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
      if (labels_.empty() && !options_.header) {
        advice = "; if this line has names, set header: true";
      }
      return absl::StrCat("column ", column, ": ", QuoteInput(fields[column]),
                          " is not a finite number", advice);
    }
    if (column == options_.label_column) {
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
  const std::string& label_field = fields[options_.label_column];
  if (!ParseFinite(absl::StripAsciiWhitespace(label_field), &label)) {
    return absl::StrCat("column ", options_.label_column,
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
  const std::string field = options_.field_path + ".path";
  BadLines bad_lines(options_.path, options_.max_bad_lines);
  CsvReader reader(text, options_.separator);
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
        if (options_.header) {
          continue;
        }
      }
      wrong = AddRow(fields, &row);
    } else if (column_count_ == 0) {
      // The first line says what the others must have: it cannot be left out.
      return Annotate(LineError(options_.path, reader.line(), wrong), field);
    }
    if (!wrong.empty()) {
      WEIR_RETURN_IF_ERROR(
          Annotate(bad_lines.Add(reader.line(), wrong), field));
    }
  }
  bad_lines.Report();
  if (labels_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", options_.path, ": has no rows"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Dataset>> CsvDataset::Create(
    const Options& options) {
  const absl::StatusOr<std::string> text = ReadInputFile(options.path);
  if (!text.ok()) {
    return Annotate(text.status(), options.field_path + ".path");
  }
  auto dataset = std::unique_ptr<CsvDataset>(new CsvDataset(options));
  WEIR_RETURN_IF_ERROR(dataset->Parse(*text));
  int64_t features = dataset->column_count_ - 1;  // all but the label
  if (dataset->columns_.has_value()) {
    features = dataset->columns_->number_count();
  }
  dataset->SetShape(std::ssize(dataset->labels_), {features});
  dataset->set_label_facts(LabelFacts::Of(dataset->labels_));
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
