#include "proto/job/source_checks.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using testing::HasSubstr;

Source Parse(const std::string& text) {
  Source source;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &source))
      << text;
  return source;
}

std::string Check(const std::string& text) {
  const absl::Status status = CheckSource("data.train", Parse(text));
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status));
  return status.ok() ? "OK" : std::string(status.message());
}

TEST(SourceChecksTest, GoodSourcesPassBeforeTheyAreResolved) {
  EXPECT_EQ(Check("criteo { path: 'a' hash_buckets: 9 max_bad_lines: 9 }"),
            "OK");
  EXPECT_EQ(Check("click_log { count: 5 }"), "OK");
  EXPECT_EQ(Check("csv { path: 'a' header: true separator: '\t' "
                  "column { name: 'x' numeric { boundary: [0, 1.5] } } "
                  "column { index: 3 categorical { value_separator: '|' } } }"),
            "OK");
}

TEST(SourceChecksTest, EveryMistakeNamesItsField) {
  const auto column = [](const std::string& text) {
    return "csv { path: 'a' column { index: 1 " + text + " } }";
  };
  const std::pair<std::string, std::string> cases[] = {
      {"",
       "data.train: is not set; choose one of idx, libsvm, csv, digits, "
       "criteo, click_log"},
      {"criteo {}", "data.train.criteo.path: is not set"},
      {"csv {}", "data.train.csv.path: is not set"},
      {"csv { path: 'a' separator: '||' }",
       "data.train.csv.separator: '||' is not one character"},
      {"csv { path: 'a' separator: '\"' }", "data.train.csv.separator: "},
      {"csv { path: 'a' separator: '\\n' }", "data.train.csv.separator: "},
      {"csv { path: 'a' column { numeric {} } }",
       "data.train.csv.column[0]: has no name and no index"},
      {"csv { path: 'a' column { name: 'x' numeric {} } }",
       "data.train.csv.column[0].name: is for files with a header"},
      {"csv { path: 'a' column { index: 0 numeric {} } }",
       "data.train.csv.column[0].index: 0 is csv.label_column"},
      {column("numeric { stddev: 0 }"),
       "data.train.csv.column[0].numeric.stddev: 0 is not > 0"},
      {column("numeric { boundary: 1 boundary: 1 }"),
       "data.train.csv.column[0].numeric.boundary[1]: 1 is not above the "
       "boundary before, 1"},
      {column("numeric { boundary: inf }"),
       "data.train.csv.column[0].numeric.boundary[0]: inf is not finite"},
      {column("categorical { value_separator: '--' }"),
       "data.train.csv.column[0].categorical.value_separator: '--' is not"},
      {column("categorical { value_separator: ',' }"),
       "categorical.value_separator: ',' is csv.separator, too"},
      {"click_log {}",
       "data.train.click_log.count: 0 is not in [1, 4294967295]"},
      {"click_log { count: 1 numeric: 70000 }",
       "data.train.click_log.numeric: 70000 is not in [0, 65536]"},
      {"click_log { count: 1 categorical: 70000 }",
       "data.train.click_log.categorical: 70000"},
      {"click_log { count: 1 ids_per_feature: 2000000000000 }",
       "data.train.click_log.ids_per_feature: 2000000000000"},
      {"click_log { count: 1 bag_size: 2000 }",
       "data.train.click_log.bag_size: 2000 is not in [0, 1024]"},
      {"click_log { count: 1 exponent: -1 }",
       "data.train.click_log.exponent: -1 is not in [0, 10]"},
  };
  for (const auto& [text, want] : cases) {
    EXPECT_THAT(Check(text), HasSubstr(want)) << text;
  }
}

}  // namespace
}  // namespace weir
