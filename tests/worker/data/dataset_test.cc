#include "worker/data/dataset.h"

#include <cmath>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/job_spec.pb.h"
#include "tests/worker/data/data_files.h"

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
  EXPECT_EQ((*absolute)->label_facts().max, 2.0f);
  const std::string svm = WriteFile("a.svm", "1 1:1\n");
  const auto rows =
      Open("libsvm { path: \"" + svm + "\" feature_count: 3 base: ZERO }", "");
  ASSERT_TRUE(rows.ok()) << rows.status();
  std::vector<float> features(3);
  float label = 0.0f;
  ASSERT_TRUE((*rows)->ReadSample(0, features.data(), &label).ok());
  EXPECT_EQ(features, (std::vector<float>{0, 1, 0}));
}

TEST(DatasetTest, NamesTheFieldThatIsMissing) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  ExpectError(Open("", "").status(), invalid,
              {"data.train: ", "idx, libsvm, csv, digits"});
  ExpectError(Open("idx { }", "").status(), invalid,
              {"data.train.idx.images: missing"});
  ExpectError(Open("libsvm { }", "").status(), invalid,
              {"data.train.libsvm.path: missing"});
  ExpectError(Open("csv { }", "").status(), invalid,
              {"data.train.csv.path: missing"});
  ExpectError(Open("digits { }", "").status(), invalid,
              {"data.train.digits.count"});
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
  EXPECT_EQ((*train)->label_facts().class_count, 10);
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
  EXPECT_EQ((*mushrooms)->label_facts().class_count, 2);
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
