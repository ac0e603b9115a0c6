#include "worker/data/formats/csv_dataset.h"

#include "gtest/gtest.h"
#include "proto/job_spec.pb.h"
#include "tests/worker/data/data_files.h"
#include "tests/worker/data/label_facts.h"
#include "worker/data/formats/dataset.h"
#include "worker/data/input/feature_hash.h"

namespace weir {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<std::unique_ptr<Dataset>> Create(const CsvSource& csv) {
  Source source;
  *source.mutable_csv() = csv;
  return CreateDataset(source, "", 0, "data.train");
}

absl::StatusOr<std::unique_ptr<Dataset>> Read(const std::string& text,
                                              int64_t label_column = 0,
                                              bool header = false) {
  CsvSource source;
  source.set_path(WriteFile("table.csv", text));
  source.set_label_column(label_column);
  source.set_header(header);
  return Create(source);
}

// Label first, then the features.
std::vector<float> Row(const Dataset& dataset, int64_t index) {
  std::vector<float> values(dataset.feature_elements() + 1);
  EXPECT_TRUE(dataset.ReadSample(index, values.data() + 1, values.data()).ok());
  return values;
}

TEST(CsvDatasetTest, TheLabelMayBeAnyColumn) {
  const std::string text = "1,2,3\n4,5,6\n";
  EXPECT_EQ(Row(**Read(text, 0), 1), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(Row(**Read(text, 1), 1), (std::vector<float>{5, 4, 6}));
  EXPECT_EQ(Row(**Read(text, 2), 0), (std::vector<float>{3, 1, 2}));
  EXPECT_EQ((*Read(text))->feature_shape(), (std::vector<int64_t>{2}));
  EXPECT_EQ((*Read(text))->size(), 2);
  EXPECT_EQ(LabelFactsOf(**Read(text)).class_count, 5);
}

TEST(CsvDatasetTest, ReadsEveryFormOfRfc4180) {
  const std::vector<float> expected = {1, 2.5f, -3};
  for (const std::string text :
       {"1,2.5,-3", "1,2.5,-3\n", "1,2.5,-3\r\n", "\"1\",\"2.5\",-3\r\n",
        " 1 ,\t2.5, -3 \n", "\n\n1,2.5,-3\n\n",
        "\xEF\xBB\xBF"
        "1,2.5,-3\n"}) {
    const auto data = Read(text);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ((*data)->size(), 1);
    EXPECT_EQ(Row(**data, 0), expected);
  }
  EXPECT_EQ(Row(**Read(Gzip("1,2.5,-3\n")), 0), expected);
}

TEST(CsvDatasetTest, AHeaderMayHoldCommasQuotesAndLines) {
  const auto data =
      Read("\"y\",\"a, \"\"b\"\"\nc\"\n1,2\n3,4\n", 0, /*header=*/true);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->size(), 2);
  EXPECT_EQ(Row(**data, 0), (std::vector<float>{1, 2}));
  // Lines are counted as an editor does.
  ExpectError(Read("\"y\",\"a\nb\"\n1,2\n3,x\n", 0, true).status(), kInvalid,
              {"table.csv:4: "});
}

TEST(CsvDatasetTest, NamesTheLineThatIsWrong) {
  const std::pair<std::string, std::string> cases[] = {
      {"1,2", "2 columns, the lines before have 3"},
      {"1,2,3,4", "4 columns, the lines before have 3"},
      {"1,2,x", "column 2: 'x' is not a finite number"},
      {"1,,3", "column 1: '' is not a finite number"},
      {"nan,2,3", "column 0: 'nan'"},
      {"1,inf,3", "column 1: 'inf'"},
      {"1,\"2,3", "a quote is not closed"},
      {"1,\"2\"2,3", "text behind a quote"},
  };
  for (const auto& [line, expected] : cases) {
    ExpectError(Read("1,2,3\n1,2,3\n" + line + "\n").status(), kInvalid,
                {"data.train.csv.path: ", "table.csv:3: ", expected});
  }
}

TEST(CsvDatasetTest, OffersTheHeaderFieldWhereItHelps) {
  ExpectError(Read("label,a\n1,2\n").status(), kInvalid,
              {"table.csv:1: ", "'label'", "set header: true"});
}

TEST(CsvDatasetTest, NamesALabelColumnThatIsNotThere) {
  ExpectError(Read("1,2\n", 2).status(), kInvalid,
              {"data.train.csv.label_column: 2", "columns 0 to 1"});
}

// A file with columns of every kind: number, log, bucket, value, bag.
CsvSource Described(const std::string& text) {
  CsvSource source;
  source.set_path(WriteFile("clicks.csv", text));
  source.set_header(true);
  source.set_separator(";");
  for (const char* name : {"x", "age", "site", "tags"}) {
    source.add_column()->set_name(name);
  }
  source.mutable_column(0)->mutable_numeric();
  source.mutable_column(1)->mutable_numeric()->add_boundary(18);
  source.mutable_column(1)->mutable_numeric()->add_boundary(65);
  source.mutable_column(2)->mutable_categorical();
  source.mutable_column(3)->mutable_categorical()->set_value_separator("|");
  return source;
}

TEST(CsvDatasetTest, ColumnsGiveNumbersAndBags) {
  const std::string text =
      "click;age; x;site;unread;tags\n"
      "1;20;2.5;a.com;zzz;p|q\n"
      "\n"
      "0;;;;;\n"
      "0;70;-1;\"b;c\";;q\n";
  for (const std::string& bytes : {text, Gzip(text), Zstd(text)}) {
    const auto data = Create(Described(bytes));
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ((*data)->feature_shape(), std::vector<int64_t>{1});
    EXPECT_EQ((*data)->sparse_features(),
              (std::vector<std::string>{"age", "site", "tags"}));
    EXPECT_EQ(Row(**data, 0), (std::vector<float>{1, 2.5f}));
    EXPECT_EQ(Row(**data, 1), (std::vector<float>{0, 0}));
    EXPECT_EQ(Row(**data, 2), (std::vector<float>{0, -1}));
    SparseBatch batch;
    batch.Clear(3);
    for (const int64_t row : {2, 0, 1}) {
      ASSERT_TRUE((*data)->ReadSparse(row, &batch).ok());
    }
    const auto& features = batch.features;
    EXPECT_EQ(features[0].ids, (std::vector<uint64_t>{2, 1, 0}));
    EXPECT_EQ(features[0].offsets, (std::vector<int64_t>{0, 1, 2, 3}));
    EXPECT_EQ(features[1].ids,
              (std::vector<uint64_t>{FeatureHash(3, "b;c"),
                                     FeatureHash(3, "a.com")}));
    EXPECT_EQ(features[1].offsets, (std::vector<int64_t>{0, 1, 2, 2}));
    EXPECT_EQ(features[2].ids,
              (std::vector<uint64_t>{FeatureHash(5, "q"), FeatureHash(5, "p"),
                                     FeatureHash(5, "q")}));
    EXPECT_EQ(features[2].offsets, (std::vector<int64_t>{0, 1, 3, 3}));
  }
}

TEST(CsvDatasetTest, ThereMayBeNoNumbers) {
  CsvSource source = Described("click;site\n1;a\n0;b\n");
  const CsvColumn site = source.column(2);
  source.clear_column();
  *source.add_column() = site;
  const auto data = Create(source);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->feature_shape(), std::vector<int64_t>{0});
  EXPECT_EQ((*data)->feature_elements(), 0);
  float label = 7.0f;
  ASSERT_TRUE((*data)->ReadSample(1, nullptr, &label).ok());
  EXPECT_EQ(label, 0.0f);
}

TEST(CsvDatasetTest, BadLinesUpToTheBoundAreLeftOut) {
  const std::string text =
      "click;age;x;site;tags\n1;20;1;a;p\n1;20;1;a\n1;20;x;a;p\n"
      "y;20;1;a;p\n1;\"20;1;a;p\n0;30;2;b;q\n";
  CsvSource source = Described(text);
  ExpectError(Create(source).status(), kInvalid,
              {"data.train.csv.path: ", "clicks.csv:3: 4 columns"});
  source.set_max_bad_lines(1);
  ExpectError(Create(source).status(), kInvalid,
              {"clicks.csv:4: column 2, 'x': 'x' is not", "max_bad_lines: 1"});
  source.set_max_bad_lines(2);
  ExpectError(Create(source).status(), kInvalid,
              {"clicks.csv:5: column 0, the label: 'y'"});
  source.set_max_bad_lines(3);
  ExpectError(Create(source).status(), kInvalid,
              {"clicks.csv:6: a quote is not closed"});
  source.set_max_bad_lines(4);
  const auto data = Create(source);
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ((*data)->size(), 2);
  EXPECT_EQ(Row(**data, 1), (std::vector<float>{0, 2}));
  SparseBatch batch;
  batch.Clear(3);
  ASSERT_TRUE((*data)->ReadSparse(1, &batch).ok());
  EXPECT_EQ(batch.features[1].ids,
            (std::vector<uint64_t>{FeatureHash(3, "b")}));
}

TEST(CsvDatasetTest, BadLinesOfNumbersLeaveNothingBehind) {
  CsvSource source;
  source.set_path(WriteFile("table.csv", "1,2,3\n4,5,x\n6,7,8\n"));
  source.set_max_bad_lines(1);
  const auto data = Create(source);
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ((*data)->size(), 2);
  EXPECT_EQ(Row(**data, 1), (std::vector<float>{6, 7, 8}));
}

TEST(CsvDatasetTest, NamesTheColumnDescriptionThatDoesNotFit) {
  ExpectError(
      Create(Described("click;age;x;tags\n1;2;3;4\n")).status(), kInvalid,
      {"data.train.csv.column[2].name: 'site' is 0 times", "clicks.csv"});
}

TEST(CsvDatasetTest, NamesAFileWithoutRowsOrFeatures) {
  ExpectError(Read("").status(), kInvalid, {"table.csv", "no rows"});
  ExpectError(Read("a,b\n", 0, true).status(), kInvalid, {"no rows"});
  ExpectError(Read("1\n2\n").status(), kInvalid, {"table.csv:1: one column"});
}

}  // namespace
}  // namespace weir
