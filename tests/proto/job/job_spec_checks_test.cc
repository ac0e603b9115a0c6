#include "proto/job/job_spec_checks.h"

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

TEST(JobSpecChecksTest, DefaultsAreThoseOfTheProto) {
  Source source = Parse(
      "csv { path: 'a' column { index: 1 numeric {} } "
      "column { index: 2 categorical {} } }");
  ResolveSource(&source);
  EXPECT_EQ(source.csv().separator(), ",");
  EXPECT_EQ(source.csv().column(0).numeric().stddev(), 1.0);
  EXPECT_EQ(CheckSource("data.train", source), absl::OkStatus());
  source = Parse("click_log { count: 5 }");
  ResolveSource(&source);
  EXPECT_EQ(source.click_log().numeric(), 13u);
  EXPECT_EQ(source.click_log().categorical(), 26u);
  EXPECT_EQ(source.click_log().ids_per_feature(), 1000000u);
  EXPECT_EQ(source.click_log().exponent(), 1.05);
  EXPECT_EQ(source.click_log().bag_size(), 1u);
  EXPECT_EQ(CheckSource("data.train", source), absl::OkStatus());
  source = Parse("idx { images: 'a' labels: 'b' }");
  ResolveSource(&source);
  EXPECT_EQ(source.idx().stddev(), 1.0f);
}

TEST(JobSpecChecksTest, WhatIsSetStays) {
  const std::string texts[] = {
      "csv { path: 'a' separator: ';' "
      "column { index: 1 numeric { stddev: 2 } } }",
      "click_log { count: 5 numeric: 1 categorical: 2 ids_per_feature: 3 "
      "exponent: 0 bag_size: 4 }"};
  for (const std::string& text : texts) {
    Source source = Parse(text);
    ResolveSource(&source);
    EXPECT_EQ(source.DebugString(), Parse(text).DebugString());
  }
}

TEST(JobSpecChecksTest, GoodSourcesPassBeforeTheyAreResolved) {
  EXPECT_EQ(Check("criteo { path: 'a' hash_buckets: 9 max_bad_lines: 9 }"),
            "OK");
  EXPECT_EQ(Check("click_log { count: 5 }"), "OK");
  EXPECT_EQ(Check("csv { path: 'a' header: true separator: '\t' "
                  "column { name: 'x' numeric { boundary: [0, 1.5] } } "
                  "column { index: 3 categorical { value_separator: '|' } } }"),
            "OK");
}

TEST(JobSpecChecksTest, EveryMistakeNamesItsField) {
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
