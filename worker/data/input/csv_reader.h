// Reads the records of comma-separated text as RFC 4180 describes it: fields
// may be quoted, a quote inside is doubled, and lines end with LF or CRLF. A
// byte order mark at the beginning is skipped.
//
// Threads: compatible. Borrows the text.
#ifndef WORKER_DATA_INPUT_CSV_READER_H_
#define WORKER_DATA_INPUT_CSV_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weir {

class CsvReader {
 public:
  explicit CsvReader(absl::string_view text, char separator = ',');

  bool AtEnd() const { return text_.empty(); }
  // The first line of the record that Next gave, counted from 1.
  int64_t line() const { return line_; }

  // Reads the next record. Returns "", or what is wrong with its form. An empty
  // line gives one empty field. A quote that is not closed may have swallowed
  // good lines, so after a fault the next record begins on the second line of
  // the faulty one.
  // REQUIRES: !AtEnd().
  absl::string_view Next(std::vector<std::string>* fields);

 private:
  bool Take(char c);
  absl::string_view ReadRecord(std::vector<std::string>* fields);
  absl::string_view ReadField(std::string* field);

  const std::string field_ends_;  // separator, CR, LF
  absl::string_view text_;        // what is left
  int64_t line_ = 0;
  int64_t next_line_ = 1;
};

}  // namespace weir

#endif  // WORKER_DATA_INPUT_CSV_READER_H_
