#include "worker/data/csv_dataset.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status.h"
#include "worker/data/input_file.h"

namespace weir {
namespace {

// Cuts records off the front of a text.
class RecordReader {
 public:
  explicit RecordReader(absl::string_view text) : text_(text) {
    if (absl::StartsWith(text_, "\xEF\xBB\xBF")) {
      text_.remove_prefix(3);
    }
  }

  bool AtEnd() const { return text_.empty(); }
  // Of the record that Next gave.
  int64_t line() const { return line_; }

  // Returns what is wrong with the record, or nothing. An empty line gives one
  // empty field.
  absl::string_view Next(std::vector<std::string>* fields) {
    fields->clear();
    line_ = next_line_;
    while (true) {
      fields->emplace_back();
      const absl::string_view wrong = ReadField(&fields->back());
      if (!wrong.empty()) {
        return wrong;
      }
      if (Take(',')) {
        continue;
      }
      Take('\r');
      if (Take('\n') || AtEnd()) {
        ++next_line_;
        return {};
      }
      return "a carriage return without a line feed, or text behind a quote";
    }
  }

 private:
  bool Take(char c) {
    if (text_.empty() || text_.front() != c) {
      return false;
    }
    text_.remove_prefix(1);
    return true;
  }

  absl::string_view ReadField(std::string* field) {
    if (!Take('"')) {
      const size_t end = std::min(text_.find_first_of(",\r\n"), text_.size());
      absl::StrAppend(field, text_.substr(0, end));
      text_.remove_prefix(end);
      return {};
    }
    while (true) {
      const size_t end = text_.find('"');
      if (end == absl::string_view::npos) {
        return "a quote is not closed";
      }
      const absl::string_view part = text_.substr(0, end);
      next_line_ += std::count(part.begin(), part.end(), '\n');
      absl::StrAppend(field, part);
      text_.remove_prefix(end + 1);
      if (!Take('"')) {
        return {};
      }
      field->push_back('"');
    }
  }

  absl::string_view text_;
  int64_t line_ = 0;
  int64_t next_line_ = 1;
};

}  // namespace

absl::Status CsvDataset::AddRow(const Options& options, int64_t line,
                                const std::vector<std::string>& fields) {
  const auto count = std::ssize(fields);
  if (count != column_count_) {
    return LineError(
        options.path, line,
        absl::StrCat(count, " columns, the lines before have ", column_count_));
  }
  for (int64_t column = 0; column < count; ++column) {
    float value = 0.0f;
    if (!ParseFinite(absl::StripAsciiWhitespace(fields[column]), &value)) {
      const bool may_be_header = labels_.empty() && !options.header;
      return LineError(
          options.path, line,
          absl::StrCat("column ", column, ": ", QuoteInput(fields[column]),
                       " is not a finite number",
                       may_be_header
                           ? "; if this line has names, set header: true"
                           : ""));
    }
    (column == options.label_column ? labels_ : features_).push_back(value);
  }
  return absl::OkStatus();
}

absl::Status CsvDataset::Parse(const Options& options,
                               const std::string& text) {
  const std::string field = options.field_path + ".path";
  RecordReader reader(text);
  std::vector<std::string> fields;
  while (!reader.AtEnd()) {
    const absl::string_view wrong = reader.Next(&fields);
    if (!wrong.empty()) {
      return Annotate(LineError(options.path, reader.line(), wrong), field);
    }
    if (fields.size() == 1 && absl::StripAsciiWhitespace(fields[0]).empty()) {
      continue;
    }
    if (column_count_ == 0) {
      column_count_ = std::ssize(fields);
      if (column_count_ < 2) {
        return Annotate(LineError(options.path, reader.line(),
                                  "one column: a label and at least one "
                                  "feature, separated by ',', are needed"),
                        field);
      }
      if (options.label_column >= column_count_) {
        return absl::InvalidArgumentError(absl::StrCat(
            options.field_path, ".label_column: ", options.label_column,
            ", but ", options.path, " has columns 0 to ", column_count_ - 1));
      }
      if (options.header) {
        continue;
      }
    }
    WEIR_RETURN_IF_ERROR(
        Annotate(AddRow(options, reader.line(), fields), field));
  }
  if (labels_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", options.path, ": has no rows"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Dataset>> CsvDataset::Create(
    const Options& options) {
  const absl::StatusOr<std::string> text = ReadInputFile(options.path);
  if (!text.ok()) {
    return Annotate(text.status(), options.field_path + ".path");
  }
  auto dataset = std::unique_ptr<CsvDataset>(new CsvDataset);
  WEIR_RETURN_IF_ERROR(dataset->Parse(options, *text));
  dataset->SetShape(std::ssize(dataset->labels_), {dataset->column_count_ - 1});
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

}  // namespace weir
