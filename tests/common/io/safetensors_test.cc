#include "common/io/safetensors.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/io/crc32c.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/support/faulty_files.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A file from a header and data, by hand.
std::string Bytes(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) {
    bytes[i] = static_cast<char>(header.size() >> (8 * i));
  }
  return bytes + header + data;
}

std::string Floats(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(float));
}

// The file of docs/formats.md: 8 + 160 + 24 bytes.
std::string Golden() {
  std::string header =
      R"({"__metadata__":{"format":"pt","weir.step":"42"},)"
      R"("w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[16,24]}})";
  header.resize(160, ' ');
  return Bytes(header, Floats({1, 2, 3, 4, -1, 0.5}));
}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> OpenBytes(
    const std::string& bytes) {
  static const std::string* const path = new std::string(MakeTempDir() + "/f");
  // Not with WriteAtomically, since thousands of fsyncs are slow.
  (*Files::Real()->Create(*path))
      ->Append(bytes.data(), bytes.size())
      .IgnoreError();
  return SafetensorsReader::Open(Files::Real(), *path);
}

std::vector<SafetensorsArray> GoldenArrays() {
  return {{.name = "w", .dtype = "F32", .shape = {2, 2}},
          {.name = "b", .dtype = "F32", .shape = {2}}};
}

TEST(SafetensorsTest, WritesTheGoldenBytes) {
  const std::string dir = MakeTempDir();
  auto writer =
      SafetensorsWriter::Create(Files::Real(), dir + "/f", GoldenArrays(),
                                {{"format", "pt"}, {"weir.step", "42"}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  // A call need not end where an array does.
  const std::vector<float> data = {1, 2, 3, 4, -1, 0.5};
  ASSERT_TRUE((*writer)->Append(data.data(), 20).ok());
  ASSERT_TRUE((*writer)->Append(data.data() + 5, 4).ok());
  EXPECT_FALSE(*Files::Real()->Exists(dir + "/f"));
  const auto digest = (*writer)->Finish();
  ASSERT_TRUE(digest.ok()) << digest.status();
  const std::string bytes = *Files::Real()->ReadAll(dir + "/f");
  EXPECT_EQ(bytes.size(), 192u);
  EXPECT_EQ(bytes[0], '\xa0');
  EXPECT_EQ(absl::BytesToHexString(bytes), absl::BytesToHexString(Golden()));
  EXPECT_EQ(*digest, (FileDigest{192, Crc32c(bytes.data(), bytes.size())}));
  EXPECT_EQ(
      *(*SafetensorsReader::Open(Files::Real(), dir + "/f"))->ReadCrc32c(),
      digest->crc32c);
  EXPECT_THAT(*Files::Real()->List(dir), ElementsAre("f"));
}

TEST(SafetensorsTest, ReadsTheGoldenBytes) {
  const auto reader = OpenBytes(Golden());
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->metadata().at("weir.step"), "42");
  ASSERT_EQ((*reader)->arrays().size(), 2u);
  const SafetensorsArray* b = (*reader)->Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(*b, (SafetensorsArray{"b", "F32", {2}, 16, 24}));
  float values[2];
  ASSERT_TRUE((*reader)->Read(*b, 0, values, 8).ok());
  EXPECT_THAT(values, ElementsAre(-1, 0.5));
  ASSERT_TRUE((*reader)->Read(*b, 4, values, 4).ok());
  EXPECT_EQ(values[0], 0.5);
  EXPECT_EQ((*reader)->Find("c"), nullptr);
  EXPECT_EQ(*(*reader)->ReadCrc32c(), Crc32c(Golden().data(), Golden().size()));
}

TEST(SafetensorsTest, TakesScalarsEmptyArraysAndAnyOrder) {
  const auto reader = OpenBytes(
      Bytes(R"({"late":{"data_offsets":[4,6],"dtype":"BF16","shape":[]},)"
            R"("none":{"dtype":"I64","shape":[0,5],"data_offsets":[4,4]},)"
            R"("a\u0041\"":{"dtype":"F4","shape":[8],"data_offsets":[0,4]}})",
            "012345"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->arrays()[0].name, "aA\"");
  EXPECT_EQ((*reader)->arrays()[1].name, "none");
  EXPECT_EQ((*reader)->arrays()[2].name, "late");
}

TEST(SafetensorsTest, RefusesEveryMalformedHeaderByName) {
  const auto array = [](const std::string& name, const std::string& dtype,
                        const std::string& shape, const std::string& offsets) {
    return absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype,
                        "\",\"shape\":", shape, ",\"data_offsets\":", offsets,
                        "}");
  };
  const std::string a = array("a", "F32", "[1]", "[0,4]");
  const struct {
    std::string header;
    std::string data;
    std::string want;
  } cases[] = {
      {"", "", "does not begin with '{'"},
      {" {}", "", "does not begin with '{'"},
      {"[]", "", "does not begin with '{'"},
      {"{" + a, "0123", "is not JSON at byte"},
      {"{" + a + "}x", "0123", "is not JSON at byte"},
      {"{\"\xff\":1}", "", "is not JSON at byte"},
      {"{}", "0", "0 bytes of data and 1 are there"},
      {"{" + a + "}", "01234", "4 bytes of data and 5 are there"},
      {"{" + a + "}", "012", "4 bytes of data and 3 are there"},
      {"{" + a + "," + a + "}", "0123", "a second entry 'a'"},
      {"{" + a + "," + array("b", "F32", "[1]", "[8,12]") + "}", "012345678901",
       "array 'b' (F32 [1] at 8 to 12) should begin at 4"},
      {"{" + a + "," + array("b", "F32", "[1]", "[2,6]") + "}", "012345",
       "array 'b' (F32 [1] at 2 to 6) should begin at 4"},
      {"{" + array("a", "F32", "[1]", "[4,8]") + "}", "01234567",
       "should begin at 0"},
      {"{" + array("a", "F32", "[2]", "[0,4]") + "}", "0123",
       "should have 8 bytes"},
      {"{" + array("a", "F33", "[1]", "[0,4]") + "}", "0123",
       "has an unknown dtype"},
      {"{" + array("a", "F32", "[4294967296,4294967296]", "[0,0]") + "}", "",
       "should have -1 bytes"},
      {"{" + array("a", "F4", "[1]", "[0,0]") + "}", "", "should have -1"},
      {"{" + array("a", "F32", "[-1]", "[0,4]") + "}", "0123",
       "a negative number at array 'a'"},
      {"{" + array("a", "F32", "[1.0]", "[0,4]") + "}", "0123",
       "a number that is no 64-bit integer"},
      {"{" + array("a", "F32", "[18446744073709551615]", "[0,4]") + "}", "0123",
       "a number beyond 2^60"},
      {"{" + array("a", "F32", "[1]", "[0]") + "}", "0123", "not two numbers"},
      {"{" + array("a", "F32", "[[1]]", "[0,4]") + "}", "0123", "a list"},
      {"{" + array("a", "F32", "{}", "[0,4]") + "}", "0123", "an object"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", "", "without all of"},
      {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", "", "second key"},
      {"{\"a\":{\"colour\":\"F32\"}}", "", "unknown or second key 'colour'"},
      {"{\"a\":null}", "", "null"},
      {"{\"a\":true}", "", "a boolean"},
      {"{\"a\":3}", "", "a number"},
      {"{\"a\":\"x\"}", "", "a string"},
      {"{\"a\":[1]}", "", "a list"},
      {"{\"__metadata__\":{\"k\":1}}", "", "a number"},
      {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", "",
       "a second metadata key 'k'"},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", "", "a second entry"},
  };
  for (const auto& c : cases) {
    const auto reader = OpenBytes(Bytes(c.header, c.data));
    ASSERT_FALSE(reader.ok()) << c.header;
    EXPECT_TRUE(absl::IsDataLoss(reader.status())) << reader.status();
    EXPECT_THAT(std::string(reader.status().message()), HasSubstr(c.want))
        << c.header;
  }
}

TEST(SafetensorsTest, RefusesImpossibleHeaderSizesBeforeReadingThem) {
  for (const uint64_t size :
       {uint64_t{3}, uint64_t{100'000'001}, ~uint64_t{0}, uint64_t{1} << 63}) {
    std::string bytes = Bytes("{}", "");
    std::memcpy(bytes.data(), &size, 8);
    EXPECT_TRUE(absl::IsDataLoss(OpenBytes(bytes).status())) << size;
  }
  EXPECT_TRUE(absl::IsDataLoss(OpenBytes("").status()));
  EXPECT_TRUE(absl::IsDataLoss(OpenBytes("1234567").status()));
}

// Deep nesting must end at the second list, not on the stack.
TEST(SafetensorsTest, DeepNestingIsRefused) {
  EXPECT_FALSE(
      OpenBytes(Bytes("{\"a\":" + std::string(1 << 20, '['), "")).ok());
}

TEST(SafetensorsTest, EveryTruncationIsRefused) {
  const std::string golden = Golden();
  for (size_t bytes = 0; bytes < golden.size(); ++bytes) {
    EXPECT_FALSE(OpenBytes(golden.substr(0, bytes)).ok()) << bytes;
  }
  EXPECT_FALSE(OpenBytes(golden + "x").ok());
}

TEST(SafetensorsTest, EveryFlippedBitIsRefusedOrSeenByTheChecksum) {
  const std::string golden = Golden();
  const uint32_t crc = Crc32c(golden.data(), golden.size());
  int refused = 0;
  for (size_t bit = 0; bit < golden.size() * 8; ++bit) {
    std::string bytes = golden;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    const auto reader = OpenBytes(bytes);
    if (!reader.ok()) {
      ++refused;
    } else {
      EXPECT_NE(*(*reader)->ReadCrc32c(), crc) << bit;
    }
  }
  // Flips in names, metadata and data are only found by the checksum.
  EXPECT_GT(refused, 600);
}

TEST(SafetensorsTest, WriterRefusesWhatDoesNotFit) {
  const std::string path = MakeTempDir() + "/f";
  const auto create = [&](std::vector<SafetensorsArray> arrays) {
    return SafetensorsWriter::Create(Files::Real(), path, std::move(arrays),
                                     {});
  };
  EXPECT_THAT(std::string(create({{.name = "a", .dtype = "X", .shape = {}}})
                              .status()
                              .message()),
              HasSubstr("'a'"));
  EXPECT_FALSE(create({{.name = "a", .dtype = "F32", .shape = {-1}}}).ok());
  EXPECT_FALSE(create({{.name = "a", .dtype = "F32", .shape = {}},
                       {.name = "a", .dtype = "F32", .shape = {}}})
                   .ok());
  EXPECT_FALSE(
      create({{.name = "__metadata__", .dtype = "F32", .shape = {}}}).ok());
  EXPECT_FALSE(create({{.name = "\xff", .dtype = "F32", .shape = {}}}).ok());

  auto writer = create(GoldenArrays());
  ASSERT_TRUE(writer.ok());
  const std::string data(32, 'x');
  EXPECT_TRUE(absl::IsInvalidArgument((*writer)->Append(data.data(), 25)));
  ASSERT_TRUE((*writer)->Append(data.data(), 20).ok());
  EXPECT_TRUE(absl::IsInvalidArgument((*writer)->Finish().status()));
}

TEST(SafetensorsTest, AbsentAndNothingLeftWhicheverCallFails) {
  const std::string dir = MakeTempDir();
  FaultyFiles files(Files::Real());
  const auto write = [&]() -> absl::Status {
    auto writer =
        SafetensorsWriter::Create(&files, dir + "/f", GoldenArrays(), {});
    if (!writer.ok()) {
      return writer.status();
    }
    const absl::Status status =
        (*writer)->Append(std::string(24, 'x').data(), 24);
    return status.ok() ? (*writer)->Finish().status() : status;
  };
  int k = 1;
  for (;; ++k) {
    files.FailCall(k, absl::ResourceExhaustedError("disk full"));
    const absl::Status status = write();
    if (status.ok()) {
      break;
    }
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    if (k < 7) {  // the seventh call, the directory's fsync, follows the rename
      EXPECT_TRUE(Files::Real()->List(dir)->empty()) << k;
    }
  }
  EXPECT_EQ(k, 8);
}

}  // namespace
}  // namespace weir
