#include "worker/data/csv_dataset.h"

#include "gtest/gtest.h"
#include "tests/worker/data/data_files.h"

namespace weir {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<std::unique_ptr<Dataset>> Read(const std::string& text,
                                              int64_t label_column = 0,
                                              bool header = false) {
  CsvDataset::Options options;
  options.path = WriteFile("table.csv", text);
  options.label_column = label_column;
  options.header = header;
  options.field_path = "data.train.csv";
  return CsvDataset::Create(options);
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
  EXPECT_EQ((*Read(text))->label_facts().class_count, 5);
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

TEST(CsvDatasetTest, NamesAFileWithoutRowsOrFeatures) {
  ExpectError(Read("").status(), kInvalid, {"table.csv", "no rows"});
  ExpectError(Read("a,b\n", 0, true).status(), kInvalid, {"no rows"});
  ExpectError(Read("1\n2\n").status(), kInvalid, {"table.csv:1: one column"});
}

}  // namespace
}  // namespace weir
