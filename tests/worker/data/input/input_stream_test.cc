#include "worker/data/input/input_stream.h"

#include <vector>

#include "common/base/limits.h"
#include "gtest/gtest.h"
#include "tests/worker/data/data_files.h"

namespace weir {
namespace {

constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

// Reads in pieces of `piece` bytes, as one string.
absl::StatusOr<std::string> ReadIn(const std::string& path, size_t piece,
                                   int64_t unpacked_max = 0) {
  auto stream = InputStream::Open(path, unpacked_max);
  if (!stream.ok()) {
    return stream.status();
  }
  std::string text;
  std::vector<char> buffer(piece);
  while (true) {
    const auto bytes = (*stream)->Read(buffer.data(), piece);
    if (!bytes.ok()) {
      return bytes.status();
    }
    text.append(buffer.data(), *bytes);
    if (*bytes < piece) {
      return text;
    }
  }
}

// Text of which even the packed form takes more than one step of reading.
std::string Text() {
  std::string text;
  for (uint64_t i = 0; text.size() < 5'000'000; ++i) {
    text += std::to_string(i * 0x9e3779b97f4a7c15u) + "\n";
  }
  return text;
}

using Pack = std::string (*)(const std::string&);
struct Format {
  const char* name;
  Pack pack;
};

class InputStreamTest : public testing::TestWithParam<Format> {
 protected:
  static std::string Packed(const std::string& text) {
    return GetParam().pack(text);
  }
};

TEST_P(InputStreamTest, GivesTheSameBytesInPiecesOfAnySize) {
  const std::string text = Text();
  const std::string path = WriteFile("a", Packed(text));
  for (const size_t piece : {1000u, 1u << 20, 1u << 23}) {
    const auto read = ReadIn(path, piece);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(*read == text) << piece;  // no megabytes in a message
  }
  // The end falls on the end of a piece.
  EXPECT_EQ(ReadIn(WriteFile("a", Packed("12345678")), 4).value(), "12345678");
  EXPECT_EQ(ReadIn(WriteFile("a", Packed("")), 4).value(), "");
}

TEST_P(InputStreamTest, PartsMayFollowOneAnother) {
  const std::string path =
      WriteFile("a", Packed("one ") + Packed("") + Packed("two"));
  EXPECT_EQ(ReadIn(path, 2).value(), "one two");
  EXPECT_EQ(ReadIn(path, 100).value(), "one two");
}

TEST_P(InputStreamTest, NamesAFileThatIsCutAtAnyByte) {
  if (std::string(GetParam().name) == "plain") {
    GTEST_SKIP() << "a plain file has no end to miss";
  }
  const std::string packed = Packed("some text that is packed");
  for (size_t bytes = 4; bytes < packed.size(); ++bytes) {
    const std::string path = WriteFile("cut", packed.substr(0, bytes));
    ExpectError(ReadIn(path, 100).status(), kDataLoss, {path, "truncated"});
  }
}

TEST_P(InputStreamTest, NamesAFileThatIsDamaged) {
  if (std::string(GetParam().name) == "plain") {
    GTEST_SKIP() << "a plain file has no sum";
  }
  std::string packed = Packed(Text());
  packed[packed.size() / 2] ^= 0x55;
  const std::string path = WriteFile("bad", packed);
  ExpectError(ReadIn(path, 1 << 20).status(), kDataLoss, {path, "damaged"});
  std::string sum = Packed("text");
  // gzip ends with CRC and size, zstd with 4 bytes of the checksum.
  sum[sum.size() - (std::string(GetParam().name) == "gzip" ? 7 : 2)] ^= 1;
  EXPECT_EQ(ReadIn(WriteFile("a", sum), 9).status().code(), kDataLoss);
  const std::string tail = WriteFile("a", Packed("text") + "not packed at all");
  EXPECT_EQ(ReadIn(tail, 9).status().code(), kDataLoss);
}

TEST_P(InputStreamTest, GivesNoMoreThanItsBound) {
  const std::string text(100, 'x');
  const std::string path = WriteFile("bomb", Packed(text));
  EXPECT_EQ(ReadIn(path, 7, 100).value(), text);
  EXPECT_EQ(ReadIn(path, 1000, 100).value(), text);
  if (std::string(GetParam().name) == "plain") {
    EXPECT_EQ(ReadIn(path, 7, 1).value(), text) << "it is as long as it is";
    return;
  }
  for (const size_t piece : {1, 7, 33, 99, 100, 1000}) {
    ExpectError(ReadIn(path, piece, 99).status(),
                absl::StatusCode::kInvalidArgument,
                {path, "unpack to far more", "unpack the file beforehand"});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, InputStreamTest,
    testing::Values(Format{"plain",
                           [](const std::string& text) { return text; }},
                    Format{"gzip", &Gzip}, Format{"zstd", &Zstd}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(InputStreamNameTest, AZstFileThatIsCutBeforeItsMagicIsDamaged) {
  const std::string packed = Zstd("some text");
  for (size_t bytes = 0; bytes < 4; ++bytes) {
    const std::string path = WriteFile("cut.zst", packed.substr(0, bytes));
    ExpectError(ReadIn(path, 9).status(), kDataLoss, {path, "truncated"});
  }
  const std::string text = WriteFile("text.zst", "1,2,3\n4,5,6\n");
  ExpectError(ReadIn(text, 9).status(), kDataLoss, {text, "damaged"});
}

// A zstd frame of one block that is not packed, which says that unpacking it
// takes a window of 2^window_log bytes (RFC 8878, section 3.1.1).
std::string FrameOf(const std::string& text, int window_log) {
  const auto header = static_cast<uint32_t>(text.size() << 3 | 1);  // the last
  std::string frame = "\x28\xb5\x2f\xfd";
  frame += '\0';
  frame += static_cast<char>((window_log - 10) << 3);
  for (int byte = 0; byte < 3; ++byte) {
    frame += static_cast<char>(header >> (8 * byte));
  }
  return frame + text;
}

// The library looks at the size that a frame says only if all of it fits the
// caller's memory, or if its last block is not empty.
TEST(InputStreamFrameTest, AFrameHasTheSizeThatItSays) {
  const std::string of_100_bytes("\x28\xb5\x2f\xfd\x20\x64\x01\0\0", 9);
  const std::string path = WriteFile("a", of_100_bytes);
  for (const size_t piece : {10u, 48u, 100u, 1000u}) {
    EXPECT_EQ(ReadIn(path, piece).status().code(), kDataLoss) << piece;
  }
  // Behind another frame, so that its header is at the end of one step of
  // reading and at the beginning of the next one.
  const std::string before = FrameOf(std::string(65536 - 9 - 3, 'y'), 20);
  const std::string both =
      WriteFile("b", before + of_100_bytes + FrameOf("end", 20));
  for (const size_t piece : {10u, 48u, 1u << 20}) {
    EXPECT_EQ(ReadIn(both, piece).status().code(), kDataLoss) << piece;
  }
  const std::string right =
      WriteFile("c", before + FrameOf("mid", 20) + FrameOf("end", 20));
  EXPECT_EQ(ReadIn(right, 48)->substr(65536 - 9 - 3), "midend");
}

TEST(InputStreamMemoryTest, ASmallFileMayNotAskForAHugeWindow) {
  EXPECT_EQ(ReadIn(WriteFile("a", FrameOf("text", 27)), 9).value(), "text");
  for (const int window_log : {28, 31}) {
    const std::string path = WriteFile("bomb", FrameOf("text", window_log));
    ExpectError(ReadIn(path, 9).status(), kDataLoss, {path, "memory"});
  }
  const std::string large(128 << 10, 'x');
  EXPECT_EQ(ReadIn(WriteFile("a", FrameOf(large, 28)), 1 << 20).value(), large);
}

TEST(InputStreamBoundTest, ABoundGrowsWithTheFileAndNeverOverflows) {
  EXPECT_EQ(UnpackedBytesMax(0), kUnpackedBytesMax);
  EXPECT_EQ(UnpackedBytesMax(10), kUnpackedBytesMax + 10 * kUnpackedRatioMax);
  EXPECT_EQ(UnpackedBytesMax(INT64_MAX), INT64_MAX);
}

// A kilobyte of zeros' gzip, a thousand times over, is more than 1 GiB.
TEST(InputStreamBoundTest, AFileThatUnpacksToFarTooMuchIsRefused) {
  const std::string part = Gzip(std::string(size_t{1} << 24, ' '));
  std::string bomb;
  for (int i = 0; i < 80; ++i) {
    bomb += part;
  }
  ASSERT_GT(int64_t{80} << 24, UnpackedBytesMax(bomb.size()));
  const auto stream = *InputStream::Open(WriteFile("bomb", bomb));
  std::vector<char> buffer(1 << 20);
  absl::StatusOr<size_t> read = 1;
  while (read.ok() && *read > 0) {
    read = stream->Read(buffer.data(), buffer.size());
  }
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(InputStreamNameTest, AMissingFileIsNotFound) {
  ExpectError(ReadIn("/no/such", 9).status(), absl::StatusCode::kNotFound,
              {"/no/such"});
}

}  // namespace
}  // namespace weir
