#include "worker/data/formats/libsvm_dataset.h"

#include "gtest/gtest.h"
#include "proto/job_spec.pb.h"
#include "tests/worker/data/data_files.h"
#include "tests/worker/data/label_facts.h"
#include "worker/data/formats/dataset.h"

namespace weir {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<std::unique_ptr<Dataset>> Read(
    const std::string& text, uint32_t feature_count = 4,
    LibsvmSource::Base base = LibsvmSource::AUTO) {
  Source source;
  LibsvmSource& libsvm = *source.mutable_libsvm();
  libsvm.set_path(WriteFile("rows.svm", text));
  libsvm.set_feature_count(feature_count);
  libsvm.set_base(base);
  return CreateDataset(source, "", 0, "data.train");
}

std::vector<float> Row(const Dataset& dataset, int64_t index,
                       float* label = nullptr) {
  // The memory is not zero before, so reading must clear it.
  std::vector<float> features(dataset.feature_elements(), 9.0f);
  float ignored = 0.0f;
  EXPECT_TRUE(dataset
                  .ReadSample(index, features.data(),
                              label == nullptr ? &ignored : label)
                  .ok());
  return features;
}

TEST(LibsvmDatasetTest, MakesRowsDense) {
  const auto data = Read(
      "# a comment\n"
      "2 1:0.5 4:-1e1 # trailing\r\n"
      "\n"
      "  0.5 qid:17 2:3\n"
      "1");
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ((*data)->size(), 3);
  EXPECT_EQ((*data)->feature_shape(), (std::vector<int64_t>{4}));
  float label = 0.0f;
  EXPECT_EQ(Row(**data, 0, &label), (std::vector<float>{0.5f, 0, 0, -10}));
  EXPECT_EQ(label, 2.0f);
  EXPECT_EQ(Row(**data, 1, &label), (std::vector<float>{0, 3, 0, 0}));
  EXPECT_EQ(label, 0.5f);
  EXPECT_EQ(Row(**data, 2), (std::vector<float>(4)));
  EXPECT_EQ(LabelFactsOf(**data).class_count, 0);
}

TEST(LibsvmDatasetTest, ReadsPackedFiles) {
  const auto data = Read(Gzip("1 2:3\n"));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(Row(**data, 0), (std::vector<float>{0, 3, 0, 0}));
}

TEST(LibsvmDatasetTest, TheBaseIsOneUnlessAnIndexZeroOccurs) {
  EXPECT_EQ(Row(**Read("1 1:5\n"), 0), (std::vector<float>{5, 0, 0, 0}));
  EXPECT_EQ(Row(**Read("1 1:5\n0 0:1\n"), 0), (std::vector<float>{0, 5, 0, 0}));
  EXPECT_EQ(Row(**Read("1 1:5\n", 4, LibsvmSource::ZERO), 0),
            (std::vector<float>{0, 5, 0, 0}));
  EXPECT_EQ(Row(**Read("1 4:5\n", 4, LibsvmSource::ONE), 0),
            (std::vector<float>{0, 0, 0, 5}));
}

TEST(LibsvmDatasetTest, MinusOneAndOneBecomeZeroAndOne) {
  float label = 9.0f;
  const auto both = *Read("+1 1:1\n-1 1:1\n");
  Row(*both, 0, &label);
  EXPECT_EQ(label, 1.0f);
  Row(*both, 1, &label);
  EXPECT_EQ(label, 0.0f);
  EXPECT_EQ(LabelFactsOf(*both).class_count, 2);
  // With a third value the labels are numbers, not two classes (I2).
  const auto numbers = *Read("1 1:1\n-1 1:1\n0 1:1\n");
  Row(*numbers, 1, &label);
  EXPECT_EQ(label, -1.0f);
  EXPECT_EQ(LabelFactsOf(*numbers).min, -1.0f);
  EXPECT_EQ(LabelFactsOf(*numbers).class_count, 0);
}

TEST(LibsvmDatasetTest, NamesTheLineThatIsWrong) {
  const std::string good = "1 1:1\n";
  const std::pair<std::string, std::string> cases[] = {
      {"1 x", "expected index:value, got 'x'"},
      {"1 1", "expected index:value, got '1'"},
      {"1 :1", "expected index:value, got ':1'"},
      {"1 -1:1", "expected index:value, got '-1:1'"},
      {"1 99999999999:1", "expected index:value"},
      {"1 1:", "expected a finite number behind ':', got '1:'"},
      {"1 1:nan", "got '1:nan'"},
      {"1 1:1e99", "got '1:1e99'"},
      {"1 1:1:1", "got '1:1:1'"},
      {"1 3:1 2:1", "index 2 comes after 3"},
      {"1 3:1 3:1", "index 3 comes after 3"},
      {"abc 1:1", "the label 'abc' is not"},
      {"inf 1:1", "the label 'inf' is not"},
      {"1:1 2:1", "the label '1:1' is not"},
      {"1 5:1", "index 5 needs feature_count 5"},
  };
  for (const auto& [line, expected] : cases) {
    ExpectError(Read(good + good + line + "\n" + good).status(), kInvalid,
                {"data.train.libsvm.path: ", "rows.svm:3: ", expected});
  }
}

TEST(LibsvmDatasetTest, SaysWhyAnIndexIsTooLarge) {
  ExpectError(
      Read("1 0:1\n1 4:1\n").status(), kInvalid,
      {"rows.svm:2: ", "feature_count 5", "it is 4", "zero-based as line 1"});
  ExpectError(Read("1 1:1\n1 0:1\n", 4, LibsvmSource::ONE).status(), kInvalid,
              {"rows.svm:2: ", "base is ONE"});
}

TEST(LibsvmDatasetTest, NamesAFileWithoutRows) {
  ExpectError(Read("").status(), kInvalid, {"rows.svm", "no rows"});
  ExpectError(Read("# nothing\n\n").status(), kInvalid, {"no rows"});
}

TEST(LibsvmDatasetTest, FeatureCountMustBeGiven) {
  ExpectError(Read("1 1:1\n", 0).status(), kInvalid,
              {"data.train.libsvm.feature_count"});
}

}  // namespace
}  // namespace weir
