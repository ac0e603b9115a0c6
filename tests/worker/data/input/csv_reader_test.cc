#include "worker/data/input/csv_reader.h"

#include "gtest/gtest.h"

namespace weir {
namespace {

using Fields = std::vector<std::string>;

// Reads every record. A faulty one is given as its line and what is wrong.
std::vector<Fields> Records(const std::string& text, char separator = ',') {
  CsvReader reader(text, separator);
  std::vector<Fields> records;
  Fields fields;
  while (!reader.AtEnd()) {
    const absl::string_view wrong = reader.Next(&fields);
    records.push_back(wrong.empty() ? fields
                                    : Fields{std::to_string(reader.line()),
                                             std::string(wrong)});
  }
  return records;
}

TEST(CsvReaderTest, ReadsWhatPythonsCsvModuleReads) {
  // The fields are the output of csv.reader(io.StringIO(text, newline="")) of
  // Python 3.11, save for the empty line, which it gives as no field.
  EXPECT_EQ(Records("a,b,c\r\n1,,3\r\n\n\"x,y\",\"he said \"\"no\"\"\","
                    "\"two\nlines\"\n\"\",\" q \", z "),
            (std::vector<Fields>{{"a", "b", "c"},
                                 {"1", "", "3"},
                                 {""},
                                 {"x,y", "he said \"no\"", "two\nlines"},
                                 {"", " q ", " z "}}));
  EXPECT_EQ(Records("a\tb,c\t\"d\te\"\n", '\t'),
            (std::vector<Fields>{{"a", "b,c", "d\te"}}));
  EXPECT_EQ(Records("a;b\n;\n", ';'),
            (std::vector<Fields>{{"a", "b"}, {"", ""}}));
  EXPECT_TRUE(Records("").empty());
}

TEST(CsvReaderTest, AFaultCostsOneLine) {
  const std::string behind =
      "a carriage return without a line feed, or text behind a quote";
  EXPECT_EQ(Records("a,b\n\"x\"y,1\nc,d\n"),
            (std::vector<Fields>{{"a", "b"}, {"2", behind}, {"c", "d"}}));
  EXPECT_EQ(Records("a,\"b\nc,d\ne,f\n"),
            (std::vector<Fields>{
                {"1", "a quote is not closed"}, {"c", "d"}, {"e", "f"}}));
  // The quote of line 1 ends at that of line 3.
  EXPECT_EQ(Records("a,\"b\nc,d\n\"e\",f\n"),
            (std::vector<Fields>{{"1", behind}, {"c", "d"}, {"e", "f"}}));
}

TEST(CsvReaderTest, CountsLinesAsAnEditorDoes) {
  CsvReader reader("\xEF\xBB\xBF\"a\nb\",c\n\n1,2\n", ',');
  Fields fields;
  for (const int64_t line : {1, 3, 4}) {
    EXPECT_EQ(reader.Next(&fields), "");
    EXPECT_EQ(reader.line(), line);
  }
  EXPECT_TRUE(reader.AtEnd());
}

}  // namespace
}  // namespace weir
