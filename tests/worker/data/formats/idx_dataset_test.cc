#include "worker/data/formats/idx_dataset.h"

#include <bit>
#include <limits>

#include "gtest/gtest.h"
#include "proto/job_spec.pb.h"
#include "tests/worker/data/data_files.h"
#include "tests/worker/data/label_facts.h"
#include "worker/data/formats/dataset.h"

namespace weir {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string Idx(uint8_t type, const std::vector<uint32_t>& shape,
                const std::string& payload) {
  std::string bytes = {0, 0, static_cast<char>(type),
                       static_cast<char>(shape.size())};
  for (const uint32_t dimension : shape) {
    bytes += BigEndian(dimension);
  }
  return bytes + payload;
}

// Images [2, 2, 3] of bytes 0, 51, 102, ..., with labels 7, 3.
std::string Images() {
  return Idx(8, {2, 2, 3}, std::string("\0\x33\x66\x99\xcc\xff", 6) + "abcdef");
}
std::string Labels() { return Idx(8, {2}, "\x07\x03"); }

IdxSource FilesOf(const std::string& images, const std::string& labels) {
  IdxSource source;
  source.set_images(WriteFile("images", images));
  source.set_labels(WriteFile("labels", labels));
  return source;
}

absl::StatusOr<std::unique_ptr<Dataset>> Create(const IdxSource& idx) {
  Source source;
  *source.mutable_idx() = idx;
  return CreateDataset(source, "", 0, "data.train");
}

absl::Status Fails(const std::string& images, const std::string& labels) {
  return Create(FilesOf(images, labels)).status();
}

TEST(IdxDatasetTest, ScalesBytesAndReadsLabels) {
  for (const bool packed : {false, true}) {
    const auto dataset = Create(packed ? FilesOf(Gzip(Images()), Gzip(Labels()))
                                       : FilesOf(Images(), Labels()));
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->size(), 2);
    EXPECT_EQ((*dataset)->feature_shape(), (std::vector<int64_t>{1, 2, 3}));
    EXPECT_EQ(LabelFactsOf(**dataset).min, 3.0f);
    EXPECT_EQ(LabelFactsOf(**dataset).max, 7.0f);
    EXPECT_EQ(LabelFactsOf(**dataset).class_count, 8);
    std::vector<float> pixels(6);
    float label = 0.0f;
    ASSERT_TRUE((*dataset)->ReadSample(0, pixels.data(), &label).ok());
    EXPECT_EQ(pixels, (std::vector<float>{0.0f, 0.2f, 0.4f, 0.6f, 0.8f, 1.0f}));
    EXPECT_EQ(label, 7.0f);
    ASSERT_TRUE((*dataset)->ReadSample(1, pixels.data(), &label).ok());
    EXPECT_EQ(pixels[5], 'f' / 255.0f);
    EXPECT_EQ(label, 3.0f);
  }
}

TEST(IdxDatasetTest, NormalisesAfterTheScale) {
  IdxSource source = FilesOf(Images(), Labels());
  source.set_mean(0.5f);
  source.set_stddev(0.25f);
  const auto dataset = Create(source);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<float> pixels(6);
  float label = 0.0f;
  ASSERT_TRUE((*dataset)->ReadSample(0, pixels.data(), &label).ok());
  EXPECT_EQ(pixels[0], -2.0f);
  EXPECT_EQ(pixels[5], 2.0f);
}

TEST(IdxDatasetTest, ReadsFloatsUnscaledInAnyShape) {
  std::string payload;
  for (const float value : {1.5f, -2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f, 8.0f}) {
    payload += BigEndian(std::bit_cast<uint32_t>(value));
  }
  const std::string labels = Idx(13, {2},
                                 BigEndian(std::bit_cast<uint32_t>(0.25f)) +
                                     BigEndian(std::bit_cast<uint32_t>(-1.0f)));
  const auto table = Create(FilesOf(Idx(13, {2, 4}, payload), labels));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->feature_shape(), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(LabelFactsOf(**table).class_count, 0);
  std::vector<float> values(4);
  float label = 0.0f;
  ASSERT_TRUE((*table)->ReadSample(0, values.data(), &label).ok());
  EXPECT_EQ(values, (std::vector<float>{1.5f, -2.0f, 3.0f, 4.0f}));
  EXPECT_EQ(label, 0.25f);
  ASSERT_TRUE((*table)->ReadSample(1, values.data(), &label).ok());
  EXPECT_EQ(values, (std::vector<float>{5.0f, 6.0f, 7.0f, 8.0f}));
  EXPECT_EQ(label, -1.0f);
  const auto colour = Create(FilesOf(Idx(13, {2, 2, 2, 1}, payload), labels));
  ASSERT_TRUE(colour.ok()) << colour.status();
  EXPECT_EQ((*colour)->feature_shape(), (std::vector<int64_t>{2, 2, 1}));
}

TEST(IdxDatasetTest, NamesATruncatedFile) {
  const std::string images = Images();
  for (const size_t bytes : {0, 3, 4, 10, 15, 16, 27}) {
    ExpectError(Fails(images.substr(0, bytes), Labels()), kDataLoss,
                {"data.train.idx.images: ", "/images", "truncated"});
  }
  ExpectError(Fails(images, Labels().substr(0, 9)), kDataLoss,
              {"data.train.idx.labels: ", "/labels", "9 bytes", "says 10"});
  ExpectError(Fails(images + "x", Labels()), kDataLoss, {"too long"});
  ExpectError(Fails(Gzip(images).substr(0, 20), Labels()), kDataLoss,
              {"data.train.idx.images: ", "gzip", "truncated"});
}

TEST(IdxDatasetTest, NamesAWrongFile) {
  ExpectError(Fails("\x89PNG and so on", Labels()), kInvalid,
              {"data.train.idx.images", "/images", "89504e47", "00000803"});
  ExpectError(Fails(Idx(0x0B, {2, 2}, "12345678"), Labels()), kInvalid,
              {"bytes or floats", "00000b02"});
  ExpectError(Fails(Labels(), Images()), kInvalid,
              {"data.train.idx.images", "holds labels, not images"});
  ExpectError(Fails(Images(), Images()), kInvalid,
              {"data.train.idx.labels", "has 3 dimensions"});
  ExpectError(Fails(Idx(8, {0, 2, 3}, ""), Idx(8, {0}, "")), kInvalid,
              {"dimension 0", "no values"});
  ExpectError(
      Fails(Idx(8, {0xffffffffu, 0xffffffffu, 0xffffffffu}, "x"), Labels()),
      kInvalid, {"too large"});
}

TEST(IdxDatasetTest, NamesBothCountsWhenTheyDiffer) {
  ExpectError(Fails(Images(), Idx(8, {3}, "abc")), kInvalid,
              {"data.train.idx.labels", "3 labels", "2 images", "/images"});
}

TEST(IdxDatasetTest, NamesTheSampleThatIsNotFinite) {
  std::string payload = BigEndian(0) + BigEndian(0) + BigEndian(0);
  payload += BigEndian(
      std::bit_cast<uint32_t>(std::numeric_limits<float>::infinity()));
  ExpectError(Fails(Idx(13, {2, 2}, payload), Labels()), kInvalid,
              {"value 1 of sample 1"});
}

TEST(IdxDatasetTest, NamesANormalisationThatCannotBe) {
  for (const float bad :
       {0.0f, -1.0f, 1e-40f, std::numeric_limits<float>::infinity()}) {
    IdxSource source = FilesOf(Images(), Labels());
    source.set_stddev(bad);
    ExpectError(Create(source).status(), kInvalid, {"data.train.idx.stddev"});
  }
  IdxSource source = FilesOf(Images(), Labels());
  source.set_mean(std::numeric_limits<float>::quiet_NaN());
  ExpectError(Create(source).status(), kInvalid, {"data.train.idx.mean"});
}

TEST(IdxDatasetTest, AMissingFileIsNotFound) {
  IdxSource source = FilesOf(Images(), Labels());
  source.set_labels("/no/such/labels");
  ExpectError(Create(source).status(), absl::StatusCode::kNotFound,
              {"data.train.idx.labels", "/no/such/labels"});
}

}  // namespace
}  // namespace weir
