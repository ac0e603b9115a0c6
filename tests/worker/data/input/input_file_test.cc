#include "worker/data/input/input_file.h"

#include <unistd.h>

#include <cmath>

#include "gtest/gtest.h"
#include "tests/worker/data/data_files.h"

namespace weir {
namespace {

constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

// The contents, or the error's text.
std::string Read(const std::string& bytes) {
  const auto read = ReadInputFile(WriteFile("a", bytes));
  return read.ok() ? *read : std::string(read.status().message());
}

std::string Text() {
  std::string text;
  for (int64_t i = 0; i < 300000; ++i) {  // more than one step of inflate
    text += std::to_string(i * 7919 % 100003) + "\n";
  }
  return text;
}

TEST(InputFileTest, ReadsPlainAndPackedFilesAlike) {
  const std::string text = Text();
  EXPECT_EQ(Read(text), text);
  EXPECT_EQ(Read(Gzip(text)), text);
  EXPECT_EQ(Read(""), "");
  EXPECT_EQ(Read(Gzip("")), "");
}

TEST(InputFileTest, ReadsGzipMembersThatFollowOneAnother) {
  EXPECT_EQ(Read(Gzip("one ") + Gzip("two")), "one two");
}

TEST(InputFileTest, NamesAFileThatIsCutAtAnyByte) {
  const std::string packed = Gzip("some text that is packed");
  for (size_t bytes = 2; bytes < packed.size(); ++bytes) {
    const std::string path = WriteFile("cut.gz", packed.substr(0, bytes));
    ExpectError(ReadInputFile(path).status(), kDataLoss, {path, "truncated"});
  }
}

TEST(InputFileTest, NamesAFileThatIsDamaged) {
  std::string packed = Gzip(Text());
  packed[packed.size() / 2] ^= 0x55;
  const std::string path = WriteFile("bad.gz", packed);
  ExpectError(ReadInputFile(path).status(), kDataLoss, {path, "damaged"});
  std::string sum = Gzip("text");
  sum[sum.size() - 7] ^= 1;  // in the CRC
  EXPECT_EQ(ReadInputFile(WriteFile("a", sum)).status().code(), kDataLoss);
  const std::string tail = WriteFile("a", Gzip("text") + "not gzip at all");
  EXPECT_EQ(ReadInputFile(tail).status().code(), kDataLoss);
}

TEST(InputFileTest, AFileLongerThanTheMemoryIsAnError) {
  const std::string path = WriteFile("long", "x");
  if (::truncate(path.c_str(), int64_t{1} << 43) != 0) {
    GTEST_SKIP() << "no file of 8 TiB here";  // it takes no room on the disk
  }
  ExpectError(ReadInputFile(path).status(),
              absl::StatusCode::kResourceExhausted,
              {path, "more than the memory"});
}

TEST(InputFileTest, AMissingFileIsNotFound) {
  ExpectError(ReadInputFile("/no/such").status(), absl::StatusCode::kNotFound,
              {"/no/such"});
}

TEST(InputFileTest, ParsesWhatIsAFiniteNumberAndNothingElse) {
  float value = 7.0f;
  for (const char* bad :
       {"", "+", "-", "x", "1x", " 1", "1 ", "nan", "inf", "-inf", "+-1", "++1",
        "1e39", "1e999", "0x10", "1,5"}) {
    EXPECT_FALSE(ParseFinite(bad, &value)) << bad;
    EXPECT_EQ(value, 7.0f);
  }
  const std::pair<const char*, float> good[] = {
      {"0", 0.0f},  {"+1", 1.0f},     {"-1", -1.0f},
      {".5", 0.5f}, {"1e-3", 0.001f}, {"3.4028234e38", 3.4028234e38f},
      {"1.", 1.0f}, {"1e-60", 0.0f},  {"+1E2", 100.0f}};
  for (const auto& [text, expected] : good) {
    EXPECT_TRUE(ParseFinite(text, &value)) << text;
    EXPECT_EQ(value, expected) << text;
  }
}

TEST(InputFileTest, QuotesOnlyWhatATerminalMaySee) {
  EXPECT_EQ(QuoteInput("abc"), "'abc'");
  EXPECT_EQ(QuoteInput("\x1b[2J"), "'\\x1b[2J'");
  EXPECT_EQ(QuoteInput(std::string(40, 'a')),
            "'" + std::string(32, 'a') + "...'");
}

}  // namespace
}  // namespace weir
