#include "worker/data/input/csv_reader.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weir {

CsvReader::CsvReader(absl::string_view text, char separator)
    : field_ends_({separator, '\r', '\n'}), text_(text) {
  if (absl::StartsWith(text_, "\xEF\xBB\xBF")) {
    text_.remove_prefix(3);
  }
}

absl::string_view CsvReader::Next(std::vector<std::string>* fields) {
  line_ = next_line_;
  // Kept to go back to: see Next's comment on quotes that are not closed.
  const absl::string_view record = text_;
  const absl::string_view wrong = ReadRecord(fields);
  if (!wrong.empty()) {
    text_ = record;
    text_.remove_prefix(std::min(text_.find('\n'), text_.size()));
    Take('\n');
    next_line_ = line_ + 1;
  }
  return wrong;
}

absl::string_view CsvReader::ReadRecord(std::vector<std::string>* fields) {
  fields->clear();
  while (true) {
    fields->emplace_back();
    const absl::string_view wrong = ReadField(&fields->back());
    if (!wrong.empty()) {
      return wrong;
    }
    if (Take(field_ends_[0])) {
      continue;
    }
    // CRLF, LF, or no line end behind the last record.
    Take('\r');
    if (Take('\n') || AtEnd()) {
      ++next_line_;
      return {};
    }
    return "a carriage return without a line feed, or text behind a quote";
  }
}

bool CsvReader::Take(char c) {
  if (text_.empty() || text_.front() != c) {
    return false;
  }
  text_.remove_prefix(1);
  return true;
}

absl::string_view CsvReader::ReadField(std::string* field) {
  if (!Take('"')) {
    const size_t end = std::min(text_.find_first_of(field_ends_), text_.size());
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
    // Two quotes stand for one; a single one closes the field.
    if (!Take('"')) {
      return {};
    }
    field->push_back('"');
  }
}

}  // namespace weir
