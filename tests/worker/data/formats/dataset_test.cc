#include "worker/data/formats/dataset.h"

#include <cmath>
#include <set>

#include "absl/strings/str_replace.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/job_spec.pb.h"
#include "tests/worker/data/data_files.h"
#include "tests/worker/data/label_facts.h"

namespace weir {
namespace {

absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& text,
                                              const std::string& data_dir) {
  Source source;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &source));
  return CreateDataset(source, data_dir, /*job_seed=*/1, "data.train");
}

// Sums over all samples.
struct Sums {
  double features = 0.0;
  double squares = 0.0;
  std::vector<int64_t> labels = std::vector<int64_t>(10);
};

Sums SumsOf(const Dataset& dataset) {
  Sums sums;
  std::vector<float> features(dataset.feature_elements());
  float label = 0.0f;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    EXPECT_TRUE(dataset.ReadSample(i, features.data(), &label).ok());
    for (const float value : features) {
      sums.features += value;
      sums.squares += static_cast<double>(value) * value;
    }
    ++sums.labels.at(static_cast<size_t>(label));
  }
  return sums;
}

TEST(DatasetTest, MakesEveryKindOfReader) {
  const auto digits = Open("digits { count: 5 }", "");
  ASSERT_TRUE(digits.ok()) << digits.status();
  EXPECT_EQ((*digits)->size(), 5);
  const std::string csv = WriteFile("a.csv", "y,x\n1,2\n");
  const auto table = Open("csv { path: \"a.csv\" header: true }",
                          csv.substr(0, csv.rfind('/')));
  ASSERT_TRUE(table.ok()) << table.status();
  const auto absolute = Open(
      "csv { path: \"" + csv + "\" header: true label_column: 1 }", "/no/such");
  ASSERT_TRUE(absolute.ok()) << absolute.status();
  EXPECT_EQ(LabelFactsOf(**absolute).max, 2.0f);
  const std::string svm = WriteFile("a.svm", "1 1:1\n");
  const auto rows =
      Open("libsvm { path: \"" + svm + "\" feature_count: 3 base: ZERO }", "");
  ASSERT_TRUE(rows.ok()) << rows.status();
  std::vector<float> features(3);
  float label = 0.0f;
  ASSERT_TRUE((*rows)->ReadSample(0, features.data(), &label).ok());
  EXPECT_EQ(features, (std::vector<float>{0, 1, 0}));
}

// The contract suite: what batches and evaluation rely on, for every reader.
struct Kind {
  const char* name;
  // FILE is the path of a file with `bytes`, LABELS of three labels in IDX.
  const char* source;
  std::string bytes;
};

class DatasetContractTest : public testing::TestWithParam<Kind> {
 protected:
  static std::unique_ptr<Dataset> Make() {
    const std::string labels("\0\0\x08\x01\0\0\0\x03\1\2\0", 11);
    const std::string text = absl::StrReplaceAll(
        GetParam().source, {{"FILE", WriteFile("file", GetParam().bytes)},
                            {"LABELS", WriteFile("labels", labels)}});
    auto dataset = Open(text, "");
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return *std::move(dataset);
  }

  // Returns label, features, and the bags that it adds to an empty batch.
  static std::vector<double> Sample(const Dataset& dataset, int64_t index) {
    std::vector<float> features(dataset.feature_elements());
    float label = -1.0f;
    EXPECT_TRUE(dataset.ReadSample(index, features.data(), &label).ok());
    std::vector<double> values(features.begin(), features.end());
    values.push_back(static_cast<double>(label));
    SparseBatch batch;
    batch.Clear(dataset.sparse_features().size());
    EXPECT_TRUE(dataset.ReadSparse(index, &batch).ok());
    for (const SparseFeature& feature : batch.features) {
      values.push_back(static_cast<double>(feature.ids.size()));
      values.insert(values.end(), feature.ids.begin(), feature.ids.end());
    }
    return values;
  }
};

TEST_P(DatasetContractTest, ShapesNamesAndLabelsHold) {
  const auto dataset = Make();
  ASSERT_GE(dataset->size(), 2);
  int64_t elements = 1;
  for (const int64_t dimension : dataset->feature_shape()) {
    elements *= dimension;
  }
  EXPECT_EQ(dataset->feature_elements(), elements);
  const std::vector<std::string>& names = dataset->sparse_features();
  EXPECT_TRUE(elements > 0 || !names.empty());
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(),
            names.size());
  std::vector<float> features(elements);
  for (int64_t i = 0; i < dataset->size(); ++i) {
    float label = -1.0f;
    ASSERT_TRUE(dataset->ReadSample(i, features.data(), &label).ok());
    EXPECT_TRUE(std::isfinite(label)) << i;
    for (const float value : features) {
      EXPECT_TRUE(std::isfinite(value)) << i;
    }
  }
}

TEST_P(DatasetContractTest, ASampleIsTheSameEveryTimeAndInEveryOrder) {
  const auto first = Make();
  const auto second = Make();
  std::vector<std::vector<double>> samples;
  for (int64_t i = 0; i < first->size(); ++i) {
    samples.push_back(Sample(*first, i));
  }
  for (int64_t i = first->size() - 1; i >= 0; --i) {
    EXPECT_EQ(Sample(*first, i), samples[i]) << i;
    EXPECT_EQ(Sample(*second, i), samples[i]) << i;
  }
}

TEST_P(DatasetContractTest, BagsAreAppendedToWhatIsThere) {
  const auto dataset = Make();
  const size_t count = dataset->sparse_features().size();
  SparseBatch all;
  all.Clear(count);
  for (int64_t i = 0; i < dataset->size(); ++i) {
    ASSERT_TRUE(dataset->ReadSparse(i, &all).ok());
    ASSERT_EQ(all.features.size(), count);
    SparseBatch one;
    one.Clear(count);
    ASSERT_TRUE(dataset->ReadSparse(i, &one).ok());
    for (size_t f = 0; f < count; ++f) {
      const SparseFeature& feature = all.features[f];
      ASSERT_EQ(std::ssize(feature.offsets), i + 2);
      EXPECT_EQ(feature.offsets.back(), std::ssize(feature.ids));
      EXPECT_EQ(std::vector<uint64_t>(feature.ids.begin() + feature.offsets[i],
                                      feature.ids.end()),
                one.features[f].ids);
      EXPECT_TRUE(feature.weights.empty() ||
                  feature.weights.size() == feature.ids.size());
    }
  }
}

std::string CriteoText() {
  std::string text;
  for (int line = 0; line < 20; ++line) {
    text += std::to_string(line % 3 == 0);
    for (int i = 0; i < 13; ++i) {
      text += "\t" + ((line + i) % 4 == 0 ? "" : std::to_string(line * i - 5));
    }
    for (int c = 0; c < 26; ++c) {
      text += "\t" + ((line + c) % 5 == 0 ? "" : std::to_string(line % 7 * c));
    }
    text += "\n";
  }
  return text;
}

// Three images of two bytes.
std::string IdxImages() {
  return std::string("\0\0\x08\x02\0\0\0\x03\0\0\0\x02\x01\x02\x03\x04\x05\x06",
                     18);
}

INSTANTIATE_TEST_SUITE_P(
    Readers, DatasetContractTest,
    testing::Values(
        Kind{"idx", "idx { images: 'FILE' labels: 'LABELS' }", IdxImages()},
        Kind{"libsvm", "libsvm { path: 'FILE' feature_count: 4 }",
             "1 1:2 3:4\n-1 2:1\n1\n"},
        Kind{"csv", "csv { path: 'FILE' }", "1,2,3\n0,5,6\n1,1,1\n"},
        Kind{"csv_columns",
             "csv { path: 'FILE' header: true "
             "column { name: 'a' numeric { log: true } } "
             "column { name: 'b' categorical { value_separator: '|' } } "
             "column { index: 1 name: 'c' numeric { boundary: 3 } } }",
             "y,a,b\n1,2,p|q\n0,5,\n1,1,q\n"},
        Kind{"csv_bags_alone",
             "csv { path: 'FILE' column { index: 1 categorical { integer: "
             "true } } }",
             "1,2\n0,\n1,7\n"},
        Kind{"digits", "digits { count: 12 }", ""},
        Kind{"criteo", "criteo { path: 'FILE' }", CriteoText()},
        Kind{"click_log",
             "click_log { count: 30 numeric: 2 categorical: 3 exponent: 1 "
             "ids_per_feature: 50 bag_size: 4 }",
             ""}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(DatasetTest, CriteoIsACsvFileOfDescribedColumns) {
  const std::string path = WriteFile("day_0", CriteoText());
  const auto criteo =
      Open("criteo { path: '" + path + "' hash_buckets: 1000 }", "");
  ASSERT_TRUE(criteo.ok()) << criteo.status();
  std::string text = "csv { path: '" + path + "' separator: '\t' ";
  for (int column = 14; column < 40; ++column) {
    text += "column { index: " + std::to_string(column) +
            " categorical { hash_buckets: 1000 } } ";
  }
  const auto csv = Open(text + "}", "");
  ASSERT_TRUE(csv.ok()) << csv.status();
  ASSERT_EQ((*csv)->size(), (*criteo)->size());
  SparseBatch batches[2];
  for (SparseBatch& batch : batches) {
    batch.Clear(26);
  }
  for (int64_t i = 0; i < (*criteo)->size(); ++i) {
    ASSERT_TRUE((*criteo)->ReadSparse(i, &batches[0]).ok());
    ASSERT_TRUE((*csv)->ReadSparse(i, &batches[1]).ok());
  }
  for (int c = 0; c < 26; ++c) {
    EXPECT_EQ(batches[0].features[c].ids, batches[1].features[c].ids) << c;
    EXPECT_EQ(batches[0].features[c].offsets, batches[1].features[c].offsets);
  }
}

TEST(DatasetTest, EveryFieldOfASourceReachesItsReader) {
  const std::string path = WriteFile("a.csv", "s;1;4\nbad\n0;1;9\n1;1;2\n");
  const auto csv =
      Open("csv { path: '" + path +
               "' header: true separator: ';' max_bad_lines: 1 "
               "column { index: 2 numeric { log: true mean: 1 stddev: 2 } } "
               "column { name: '4' categorical { integer: true "
               "hash_buckets: 5 } } }",
           "");
  ASSERT_TRUE(csv.ok()) << csv.status();
  ASSERT_EQ((*csv)->size(), 2);
  float feature = 0.0f;
  float label = 0.0f;
  ASSERT_TRUE((*csv)->ReadSample(0, &feature, &label).ok());
  EXPECT_FLOAT_EQ(feature, (std::log(10.0f) - 1.0f) / 2.0f);
  SparseBatch batch;
  batch.Clear(1);
  ASSERT_TRUE((*csv)->ReadSparse(0, &batch).ok());
  EXPECT_EQ(batch.features[0].ids, (std::vector<uint64_t>{4}));
  EXPECT_EQ((*csv)->sparse_features(), (std::vector<std::string>{"4"}));

  const std::string day = WriteFile("day_0", "bad\n" + CriteoText());
  const auto criteo =
      Open("criteo { path: '" + day + "' max_bad_lines: 1 max_rows: 7 }", "");
  ASSERT_TRUE(criteo.ok()) << criteo.status();
  EXPECT_EQ((*criteo)->size(), 7);

  const std::string log =
      "click_log { count: 9 numeric: 2 categorical: 3 exponent: 0 "
      "ids_per_feature: 4 bag_size: 5 ";
  const auto clicks = Open(log + "}", "");
  const auto others = Open(log + "stream: 1 }", "");
  ASSERT_TRUE(clicks.ok()) << clicks.status();
  EXPECT_EQ((*clicks)->size(), 9);
  EXPECT_EQ((*clicks)->feature_shape(), (std::vector<int64_t>{2}));
  EXPECT_EQ((*clicks)->sparse_features(),
            (std::vector<std::string>{"C1", "C2", "C3"}));
  float numbers[2][2];
  ASSERT_TRUE((*clicks)->ReadSample(0, numbers[0], &label).ok());
  ASSERT_TRUE((*others)->ReadSample(0, numbers[1], &label).ok());
  EXPECT_NE(numbers[0][0], numbers[1][0]);
}

TEST(DatasetTest, NamesTheFieldThatIsMissing) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  ExpectError(Open("", "").status(), invalid,
              {"data.train: ", "idx, libsvm, csv, digits"});
  ExpectError(Open("idx { }", "").status(), invalid,
              {"data.train.idx.images: is not set"});
  ExpectError(Open("libsvm { }", "").status(), invalid,
              {"data.train.libsvm.path: is not set"});
  ExpectError(Open("csv { }", "").status(), invalid,
              {"data.train.csv.path: is not set"});
  ExpectError(Open("criteo { }", "").status(), invalid,
              {"data.train.criteo.path: is not set"});
  ExpectError(Open("click_log { }", "").status(), invalid,
              {"data.train.click_log.count: 0"});
  ExpectError(Open("digits { }", "").status(), invalid,
              {"data.train.digits.count: 0 is not >= 1"});
}

TEST(DatasetTest, NamesTheFieldThatIsOutOfRange) {
  const auto check = [](auto change, const std::string& want) {
    Source source;
    source.mutable_click_log()->set_count(100);
    change(source.mutable_click_log());
    ExpectError(CreateDataset(source, "", 1, "data.train").status(),
                absl::StatusCode::kInvalidArgument,
                {"data.train.click_log." + want});
  };
  check([](auto* s) { s->set_count(0); }, "count: 0 is not in [1, 4294967295]");
  check([](auto* s) { s->set_count(uint64_t{1} << 32); }, "count: 4294967296");
  check([](auto* s) { s->set_categorical(100000); }, "categorical: 100000");
  check([](auto* s) { s->set_ids_per_feature((uint64_t{1} << 40) + 1); },
        "ids_per_feature: 1099511627777");
  check([](auto* s) { s->set_exponent(-1); }, "exponent: -1");
  check([](auto* s) { s->set_exponent(std::nan("")); }, "exponent: nan");
  check([](auto* s) { s->set_bag_size(1025); }, "bag_size: 1025");
}

TEST(DatasetTest, AnUnsetFieldHasTheDefaultOfItsRule) {
  const auto clicks = Open("click_log { count: 100 }", "");
  ASSERT_TRUE(clicks.ok()) << clicks.status();
  EXPECT_EQ((*clicks)->feature_shape(), (std::vector<int64_t>{13}));
  EXPECT_EQ((*clicks)->sparse_features().size(), 26u);
}

TEST(DatasetTest, NamesAFileThatIsNotThereAndTheFlag) {
  ExpectError(Open("csv { path: \"a.csv\" }", "/no/such").status(),
              absl::StatusCode::kNotFound,
              {"data.train.csv.path", "/no/such/a.csv", "--data_dir"});
}

TEST(DatasetTest, ReadsMnist) {
  const std::string folder = RealData("mnist/train-images-idx3-ubyte.gz");
  if (folder.empty()) {
    GTEST_SKIP() << "no MNIST: set WEIR_TEST_DATA to the folder with mnist/";
  }
  const auto train = Open(
      "idx { images: \"train-images-idx3-ubyte.gz\" "
      "labels: \"train-labels-idx1-ubyte.gz\" }",
      folder + "/mnist");
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ((*train)->size(), 60000);
  EXPECT_EQ((*train)->feature_shape(), (std::vector<int64_t>{1, 28, 28}));
  EXPECT_EQ(LabelFactsOf(**train).class_count, 10);
  const Sums sums = SumsOf(**train);
  // The published mean and deviation, and the published counts of 0 and 1.
  const double mean = sums.features / (60000.0 * 784.0);
  EXPECT_NEAR(mean, 0.1307, 5e-5);
  EXPECT_NEAR(std::sqrt(sums.squares / (60000.0 * 784.0) - mean * mean), 0.3081,
              5e-5);
  EXPECT_EQ(sums.labels[0], 5923);
  EXPECT_EQ(sums.labels[1], 6742);
  const auto test = Open(
      "idx { images: \"t10k-images-idx3-ubyte.gz\" "
      "labels: \"t10k-labels-idx1-ubyte.gz\" mean: 0.1307 stddev: 0.3081 }",
      folder + "/mnist");
  ASSERT_TRUE(test.ok()) << test.status();
  EXPECT_EQ((*test)->size(), 10000);
  ExpectError(Open("idx { images: \"t10k-images-idx3-ubyte.gz\" "
                   "labels: \"train-labels-idx1-ubyte.gz\" }",
                   folder + "/mnist")
                  .status(),
              absl::StatusCode::kInvalidArgument,
              {"60000 labels", "10000 images"});
}

TEST(DatasetTest, ReadsAgaricusAndHeartScale) {
  const std::string folder = RealData("libsvm/agaricus.txt.train");
  if (folder.empty()) {
    GTEST_SKIP() << "no data: set WEIR_TEST_DATA to the folder with libsvm/";
  }
  const auto mushrooms =
      Open("libsvm { path: \"agaricus.txt.train\" feature_count: 126 }",
           folder + "/libsvm");
  ASSERT_TRUE(mushrooms.ok()) << mushrooms.status();
  EXPECT_EQ((*mushrooms)->size(), 6513);
  EXPECT_EQ((*mushrooms)->feature_shape(), (std::vector<int64_t>{126}));
  EXPECT_EQ(LabelFactsOf(**mushrooms).class_count, 2);
  // awk counts them so.
  const Sums sums = SumsOf(**mushrooms);
  EXPECT_EQ(sums.features, 143286.0);
  EXPECT_EQ(sums.labels[1], 3140);
  ExpectError(Open("libsvm { path: \"agaricus.txt.train\" feature_count: 9 }",
                   folder + "/libsvm")
                  .status(),
              absl::StatusCode::kInvalidArgument, {"feature_count 126"});
  const auto heart = Open("libsvm { path: \"heart_scale\" feature_count: 13 }",
                          folder + "/libsvm");
  ASSERT_TRUE(heart.ok()) << heart.status();
  EXPECT_EQ((*heart)->size(), 270);
  EXPECT_EQ(SumsOf(**heart).labels[1], 120);
}

}  // namespace
}  // namespace weir
