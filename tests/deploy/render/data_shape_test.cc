#include "deploy/render/data_shape.h"

#include "common/io/files.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "worker/data/formats/dataset.h"

namespace weir {
namespace {

using testing::Each;
using testing::ElementsAre;

Source ParseSource(const std::string& text) {
  Source source;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &source));
  return source;
}

DataShape ShapeOf(const std::string& text, const std::string& folder = "") {
  const auto shape = ShapeOfData(ParseSource(text), folder, 1, "data.train");
  EXPECT_TRUE(shape.ok()) << shape.status();
  return shape.ok() ? *shape : DataShape();
}

void Write(const std::string& path, const std::string& text) {
  auto writer = Files::Real()->Create(path);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Append(text.data(), text.size()).ok());
  ASSERT_TRUE((*writer)->Close().ok());
}

// What the job file says has to be what the reader of the data says.
void ExpectAsRead(const std::string& source, const std::string& text) {
  const std::string folder = MakeTempDir();
  Write(folder + "/data.txt", text);
  const DataShape said = ShapeOf(source);
  EXPECT_EQ(said.unknown, "");
  EXPECT_NE(said.bytes_unknown, "");
  const DataShape read = ShapeOf(source, folder);
  EXPECT_EQ(said.features, read.features);
  EXPECT_EQ(said.id_names, read.id_names);
  EXPECT_EQ(said.ids, read.ids);
  EXPECT_EQ(read.bytes, static_cast<double>(text.size()));
  EXPECT_EQ(read.bytes_unknown, "");
}

TEST(DataShapeTest, KnowsFilesAsTheirReadersDo) {
  ExpectAsRead("libsvm { path: 'data.txt' feature_count: 7 }", "1 1:2 7:1\n");
  std::string criteo = "1";
  for (int i = 0; i < 39; ++i) {
    criteo += i < 13 ? "\t1" : "\tab";
  }
  ExpectAsRead("criteo { path: 'data.txt' hash_buckets: 100 }", criteo + "\n");
  ExpectAsRead(
      "csv { path: 'data.txt' label_column: 0"
      " column { name: 'a' index: 1 numeric {} }"
      " column { index: 2 categorical { hash_buckets: 9 } }"
      " column { name: 'c' index: 3 numeric { boundary: 1 boundary: 2 } } }",
      "1,2,x,3\n");
}

TEST(DataShapeTest, KnowsGeneratedDataAsItsMakerDoes) {
  for (const char* text :
       {"digits { count: 5 }",
        "click_log { count: 9 numeric: 2 categorical: 3 ids_per_feature: 5"
        " bag_size: 1 }"}) {
    const DataShape said = ShapeOf(text);
    EXPECT_EQ(said.unknown + said.bytes_unknown, "");
    const auto made = CreateDataset(ParseSource(text), "", 1, "data.train");
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(said.features, (*made)->feature_shape());
    EXPECT_EQ(said.id_names, (*made)->sparse_features());
  }
}

TEST(DataShapeTest, CountsTheIdsThatMayCome) {
  const DataShape clicks = ShapeOf(
      "click_log { count: 9 categorical: 3 ids_per_feature: 5 bag_size: 2 }");
  EXPECT_THAT(clicks.ids, ElementsAre(5, 5, 5));
  EXPECT_FALSE(clicks.ids_are_shared);
  EXPECT_EQ(clicks.bag_size, 2);
  const DataShape criteo = ShapeOf("criteo { path: 'x' hash_buckets: 100 }");
  EXPECT_THAT(criteo.ids, Each(100));
  EXPECT_EQ(criteo.ids.size(), criteo.id_names.size());
  EXPECT_TRUE(criteo.ids_are_shared);
  EXPECT_THAT(ShapeOf("csv { path: 'x' column { name: 'n' }"
                      " column { name: 'a' categorical { hash_buckets: 9 } }"
                      " column { name: 'b' categorical {} }"
                      " column { name: 'c' numeric { boundary: 1 } } }")
                  .ids,
              ElementsAre(9, 0, 2));
}

TEST(DataShapeTest, SaysWhatOnlyTheFileKnows) {
  EXPECT_EQ(ShapeOf("idx { images: 'i' labels: 'l' }").unknown,
            "the size of its images is in the file");
  EXPECT_EQ(ShapeOf("csv { path: 'x' }").unknown,
            "the number of its columns is in the file");
  EXPECT_EQ(ShapeOf("csv { path: 'x' header: true"
                    " column { index: 2 categorical {} } }")
                .unknown,
            "the names of its features are in the file's header");
}

TEST(DataShapeTest, KnowsWhatReadsFiles) {
  EXPECT_FALSE(ReadsFiles(Source()));
  EXPECT_FALSE(ReadsFiles(ParseSource("digits { count: 1 }")));
  EXPECT_FALSE(ReadsFiles(ParseSource("click_log { count: 1 }")));
  EXPECT_TRUE(ReadsFiles(ParseSource("csv { path: 'x' }")));
}

TEST(DataShapeTest, SaysThatDataIsMissing) {
  const auto shape = ShapeOfData(ParseSource("csv { path: 'x' }"),
                                 MakeTempDir(), 1, "data.train");
  EXPECT_EQ(shape.status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace weir
