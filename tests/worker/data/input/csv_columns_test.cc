#include "worker/data/input/csv_columns.h"

#include <cmath>
#include <utility>

#include "gtest/gtest.h"
#include "worker/data/input/feature_hash.h"

namespace weir {
namespace {

CsvColumn Numeric(uint32_t index) {
  CsvColumn column;
  column.set_index(index);
  return column;
}

CsvColumn Categorical(uint32_t index) {
  CsvColumn column = Numeric(index);
  column.mutable_categorical();
  return column;
}

CsvColumn Named(const std::string& name) {
  CsvColumn column;
  column.set_name(name);
  return column;
}

CsvSource Source(const std::vector<CsvColumn>& columns, uint32_t label_column) {
  CsvSource source;
  source.mutable_column()->Assign(columns.begin(), columns.end());
  source.set_label_column(label_column);
  return source;
}

// Makes the columns of a file with `count` columns, the last of which is the
// label's.
CsvColumns Make(const std::vector<CsvColumn>& columns, uint32_t count) {
  auto made = CsvColumns::Create(Source(columns, count - 1), count, {});
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

// Returns what is wrong, or "" with the row in *row.
std::string Parse(const CsvColumn& column, const std::string& field,
                  CsvRow* row) {
  return Make({column}, 2).Parse({field, "1"}, row);
}

TEST(CsvColumnsTest, NumbersAreTransformedInOrder) {
  CsvRow row;
  CsvColumn options = Numeric(0);
  EXPECT_EQ(Parse(options, " -2.5 ", &row), "");
  EXPECT_EQ(row.numbers, (std::vector<float>{-2.5f}));
  EXPECT_EQ(Parse(options, " ", &row), "");
  EXPECT_EQ(row.numbers, (std::vector<float>{0.0f}));
  options.mutable_numeric()->set_log(true);
  EXPECT_EQ(Parse(options, "-9", &row), "");
  EXPECT_FLOAT_EQ(row.numbers[0], -std::log(10.0f));
  options.mutable_numeric()->set_mean(1.0);
  options.mutable_numeric()->set_stddev(4.0);
  EXPECT_EQ(Parse(options, "9", &row), "");
  EXPECT_FLOAT_EQ(row.numbers[0], (std::log(10.0f) - 1.0f) / 4.0f);
  EXPECT_EQ(Parse(options, "", &row), "");
  EXPECT_FLOAT_EQ(row.numbers[0], -0.25f);
  // In double: float32 would see no difference.
  options = Numeric(0);
  options.mutable_numeric()->set_mean(1.6e9);
  EXPECT_EQ(Parse(options, "1600000001", &row), "");
  EXPECT_EQ(row.numbers[0], 1.0f);
}

TEST(CsvColumnsTest, BoundariesMakeBuckets) {
  CsvColumn options = Numeric(0);
  for (const double boundary : {0.0, 1.0, 10.0}) {
    options.mutable_numeric()->add_boundary(boundary);
  }
  const std::pair<std::string, uint64_t> cases[] = {
      {"-1e300", 0}, {"-0.5", 0}, {"0", 1},  {"", 1},     {"0.99", 1},
      {"1", 2},      {"9.9", 2},  {"10", 3}, {"1e300", 3}};
  for (const auto& [field, bucket] : cases) {
    CsvRow row;
    EXPECT_EQ(Parse(options, field, &row), "");
    EXPECT_EQ(row.ids, (std::vector<uint64_t>{bucket})) << field;
    EXPECT_EQ(row.bag_counts, (std::vector<uint16_t>{1}));
    EXPECT_TRUE(row.numbers.empty());
  }
  options.mutable_numeric()->set_mean(5.0);  // before the boundaries
  CsvRow row;
  EXPECT_EQ(Parse(options, "5.5", &row), "");
  EXPECT_EQ(row.ids, (std::vector<uint64_t>{1}));
}

TEST(CsvColumnsTest, CategoriesAreBagsOfHashes) {
  CsvColumn options = Categorical(0);
  CsvRow row;
  EXPECT_EQ(Parse(options, "a|b", &row), "");
  EXPECT_EQ(row.ids, (std::vector<uint64_t>{FeatureHash(0, "a|b")}));
  EXPECT_EQ(Parse(options, "", &row), "");
  EXPECT_TRUE(row.ids.empty());
  EXPECT_EQ(row.bag_counts, (std::vector<uint16_t>{0}));
  options.mutable_categorical()->set_value_separator("|");
  options.mutable_categorical()->set_hash_buckets(7);
  EXPECT_EQ(Parse(options, "a||b|a|", &row), "");
  EXPECT_EQ(row.ids, (std::vector<uint64_t>{FeatureHash(0, "a") % 7,
                                            FeatureHash(0, "b") % 7,
                                            FeatureHash(0, "a") % 7}));
  EXPECT_EQ(row.bag_counts, (std::vector<uint16_t>{3}));
  EXPECT_EQ(Parse(options, "|", &row), "");
  EXPECT_TRUE(row.ids.empty());
  std::string many;
  for (int i = 0; i < 65536; ++i) {
    many += "a|";
  }
  EXPECT_EQ(Parse(options, many, &row),
            "column 0: 65536 values, more than 65535");
}

TEST(CsvColumnsTest, IntegersAreTheirOwnIds) {
  CsvColumn options = Categorical(0);
  options.mutable_categorical()->set_integer(true);
  options.mutable_categorical()->set_value_separator(" ");
  CsvRow row;
  EXPECT_EQ(Parse(options, "18446744073709551615 7  0 ", &row), "");
  EXPECT_EQ(row.ids, (std::vector<uint64_t>{18446744073709551615u, 7, 0}));
  options.mutable_categorical()->set_hash_buckets(5);
  EXPECT_EQ(Parse(options, "7 12", &row), "");
  EXPECT_EQ(row.ids, (std::vector<uint64_t>{2, 2}));
  for (const std::string bad : {"x", "1.5", "-1", "18446744073709551616"}) {
    EXPECT_EQ(
        Parse(options, bad, &row),
        "column 0: '" + bad + "' is not a whole number from 0 to 2^64 - 1");
  }
}

TEST(CsvColumnsTest, KindsKeepTheOrderOfTheColumns) {
  CsvColumn bucket = Numeric(2);
  bucket.mutable_numeric()->add_boundary(5.0);
  const CsvColumns columns =
      Make({Categorical(3), Numeric(2), bucket, Numeric(0)}, 5);
  EXPECT_EQ(columns.number_count(), 2);
  EXPECT_EQ(columns.id_names(),
            (std::vector<std::string>{"column3", "column2"}));
  CsvRow row;
  EXPECT_EQ(columns.Parse({"1", "unread", "7", "z", "0"}, &row), "");
  EXPECT_EQ(row.numbers, (std::vector<float>{7, 1}));
  EXPECT_EQ(row.ids, (std::vector<uint64_t>{FeatureHash(3, "z"), 1}));
}

TEST(CsvColumnsTest, NamesTheColumnOfABadField) {
  const auto columns = CsvColumns::Create(
      Source({Named("price"), Named("age")}, 0), 3, {"y", "age", "price"});
  ASSERT_TRUE(columns.ok()) << columns.status();
  CsvRow row;
  EXPECT_EQ(columns->Parse({"1", "2", "abc"}, &row),
            "column 2, 'price': 'abc' is not a finite number");
  CsvColumn tiny = Numeric(0);
  tiny.mutable_numeric()->set_stddev(1e-300);
  EXPECT_EQ(Parse(tiny, "1e300", &row),
            "column 0: '1e300' becomes inf, which is no finite float32");
}

TEST(CsvColumnsTest, AHeaderNamesFeatures) {
  std::vector<CsvColumn> options = {Named("site"), Categorical(0)};
  options[0].mutable_categorical();
  CsvColumn both = Categorical(2);
  both.set_name("mine");
  options.push_back(both);
  const auto columns =
      CsvColumns::Create(Source(options, 3), 4, {"user", "site", "page", "y"});
  ASSERT_TRUE(columns.ok()) << columns.status();
  EXPECT_EQ(columns->id_names(),
            (std::vector<std::string>{"site", "user", "mine"}));
}

TEST(CsvColumnsTest, NamesTheDescriptionThatDoesNotFit) {
  const std::vector<std::string> header = {"a", "b", "b", "y"};
  const std::pair<std::vector<CsvColumn>, std::string> cases[] = {
      {{Numeric(0), Numeric(4)},
       "column[1].index: 4, but the file has columns 0 to 3"},
      {{Numeric(3)}, "column[0]: is the label's column, 3"},
      {{Named("c")},
       "column[0].name: 'c' is 0 times in the header, which has 'a', 'b', 'b', "
       "'y'"},
      {{Named("b")}, "column[0].name: 'b' is 2 times in the header"},
      {{Categorical(0), Categorical(0)},
       "column[1].name: 'a' is another feature's name already"},
  };
  for (const auto& [options, want] : cases) {
    const auto columns = CsvColumns::Create(Source(options, 3), 4, header);
    EXPECT_EQ(columns.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(columns.status().message().substr(0, want.size()), want);
  }
  EXPECT_EQ(
      CsvColumns::Create(Source({Named("a")}, 3), 4, {}).status().message(),
      "column[0].name: the file has no header; set csv.header or the "
      "index");
}

}  // namespace
}  // namespace weir
