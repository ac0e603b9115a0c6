#include "common/io/growing_file.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/io/files.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/support/fake_s3_store.h"
#include "tests/support/faulty_files.h"

namespace weir {
namespace {

using Fault = FakeS3::Fault;

constexpr char kName[] = "s3://bucket/run/train.jsonl";

// All lines, with a line break behind each.
std::string Read(GrowingFile* file) {
  std::string text;
  const absl::Status status = file->ReadLines(
      [&](absl::string_view line) { absl::StrAppend(&text, line, "\n"); });
  EXPECT_TRUE(status.ok()) << status;
  return text;
}

std::string Long(char digit) {
  return std::string(GrowingFile::kLineBytesMax - 1, digit) + "\n";
}

TEST(GrowingFileTest, IsOneFileOnADisk) {
  const std::string path = MakeTempDir() + "/train.jsonl";
  GrowingFile file(Files::Real(), path);
  EXPECT_EQ(Read(&file), "");
  ASSERT_TRUE(file.Append("1\n").ok());
  ASSERT_TRUE(file.Append("2\n").ok());
  EXPECT_EQ(*Files::Real()->ReadAll(path), "1\n2\n");
  EXPECT_EQ(Read(&file), "1\n2\n");
  ASSERT_TRUE(
      file.Cut([](absl::string_view line) { return line != "2"; }).ok());
  ASSERT_TRUE(file.Append("4\n").ok());
  EXPECT_EQ(*Files::Real()->ReadAll(path), "1\n4\n");
}

TEST(GrowingFileTest, IsReadAndCutInPieces) {
  const std::string path = MakeTempDir() + "/train.jsonl";
  FaultyFiles files(Files::Real());
  GrowingFile file(&files, path);
  for (const char digit : {'1', '2', '3'}) {
    ASSERT_TRUE(file.Append(Long(digit)).ok());
  }
  int reads = 0;
  files.Watch([&](const std::string& call) {
    if (absl::StartsWith(call, "read ")) {
      ++reads;
    }
  });
  EXPECT_EQ(Read(&file), Long('1') + Long('2') + Long('3'));
  EXPECT_EQ(reads, 3);
  ASSERT_TRUE(
      file.Cut([](absl::string_view line) { return line[0] < '3'; }).ok());
  EXPECT_EQ(*Files::Real()->ReadAll(path), Long('1') + Long('2'));
}

// Whatever of a text reached the file, a repeat brings the rest, and more.
TEST(GrowingFileTest, GoesOnBehindThePieceOfALine) {
  const std::string path = MakeTempDir() + "/train.jsonl";
  for (int call = 1; call <= 5; ++call) {
    SCOPED_TRACE(call);
    Files::Real()->Remove(path).IgnoreError();
    FaultyFiles files(Files::Real());
    GrowingFile file(&files, path);
    ASSERT_TRUE(file.Append("first\n").ok());
    const absl::Status full = absl::ResourceExhaustedError("full");
    files.FailCall(std::min(call, 3), full);  // open, write, close
    EXPECT_FALSE(file.Append("second\n").ok());
    files.FailCall(call, full);  // open, read, and the same again
    EXPECT_FALSE(file.Append("second\nthird\n").ok());
    files.FailCall(0, absl::OkStatus());
    ASSERT_TRUE(file.Append("second\nthird\nfourth\n").ok());
    ASSERT_TRUE(file.Append("fifth\n").ok());
    EXPECT_EQ(*Files::Real()->ReadAll(path),
              "first\nsecond\nthird\nfourth\nfifth\n");
  }
}

TEST(GrowingFileTest, APieceThatIsNotRepeatedStaysALineOfItsOwn) {
  const std::string path = MakeTempDir() + "/train.jsonl";
  ASSERT_TRUE(Files::Real()->Append(path, "of one that was kil").ok());
  FaultyFiles files(Files::Real());
  GrowingFile file(&files, path);
  ASSERT_TRUE(file.Append("1\n").ok());
  files.FailCall(2, absl::ResourceExhaustedError("full"));
  EXPECT_FALSE(file.Append("1234567\n").ok());
  ASSERT_TRUE(file.Append("2\n").ok());
  EXPECT_EQ(*Files::Real()->ReadAll(path), "of one that was kil\n1\n1234\n2\n");
}

TEST(GrowingFileTest, IsAPartOfEachWriterInAnObjectStore) {
  FakeS3Store fake;
  FakeClock clock;
  GrowingFile file(fake.store(), kName, &clock);
  EXPECT_EQ(Read(&file), "");
  ASSERT_TRUE(file.Append("1\n").ok());  // the first one is seen at once
  EXPECT_EQ(Read(&file), "1\n");
  ASSERT_TRUE(file.Append("2\n").ok());
  EXPECT_EQ(Read(&file), "1\n");
  clock.Advance(GrowingFile::kPartEvery);
  ASSERT_TRUE(file.Append("3\n").ok());
  EXPECT_EQ(Read(&file), "1\n2\n3\n");
  ASSERT_TRUE(file.Append("4\n").ok());
  ASSERT_TRUE(file.Flush().ok());
  EXPECT_EQ(Read(&file), "1\n2\n3\n4\n");
  ASSERT_TRUE(file.AppendNow("5\n").ok());
  EXPECT_EQ(Read(&file), "1\n2\n3\n4\n5\n");
  EXPECT_EQ(fake.s3()->keys(),
            std::vector<std::string>{"run/train.jsonl.part-00000001"});
  // Another process goes on behind it, and a third one takes a number first.
  GrowingFile next(fake.store(), kName, &clock);
  ASSERT_TRUE(next.Append("6\n").ok());
  fake.s3()->PutObject("run/train.jsonl.part-00000003", "7\n");
  ASSERT_TRUE(next.AppendNow(Long('8')).ok());
  for (int i = 0; i < 4; ++i) {  // its part is full, and the next one taken
    ASSERT_TRUE(next.AppendNow(Long('8')).ok());
  }
  EXPECT_EQ(
      fake.s3()->keys(),
      (std::vector<std::string>{
          "run/train.jsonl.part-00000001", "run/train.jsonl.part-00000002",
          "run/train.jsonl.part-00000003", "run/train.jsonl.part-00000004"}));
  EXPECT_TRUE(absl::EndsWith(Read(&file), "8\n7\n" + Long('8')));
}

TEST(GrowingFileTest, CutLooksAtTheLastPartsAlone) {
  FakeS3Store fake;
  for (int i = 1; i <= 9; ++i) {
    fake.s3()->PutObject(absl::StrCat("run/train.jsonl.part-0000000", i),
                         absl::StrCat(2 * i, "\n", 2 * i + 1, "\n"));
  }
  std::vector<std::string> read;
  fake.s3()->SetFaults([&](const HttpRequest& request) {
    if (request.method == "GET" && absl::StrContains(request.path, "part-")) {
      read.push_back(request.path.substr(request.path.size() - 1));
    }
    return Fault::kNone;
  });
  GrowingFile file(fake.store(), kName);
  const auto keep = [](absl::string_view line) {
    return line.size() == 1 || line < "15";
  };
  ASSERT_TRUE(file.Cut(keep).ok());
  EXPECT_EQ(read, (std::vector<std::string>{"9", "8", "7", "7", "6"}));
  fake.s3()->SetFaults(nullptr);
  // The number of a part that was removed is not given again.
  ASSERT_TRUE(file.Append("15\n").ok());
  EXPECT_EQ(fake.s3()->keys().back(), "run/train.jsonl.part-00000010");
  EXPECT_EQ(Read(&file), "2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n");
}

TEST(GrowingFileTest, WhatCannotBeWrittenIsNotTaken) {
  FakeS3Store fake;
  FakeClock clock;
  GrowingFile file(fake.store(), kName, &clock);
  ASSERT_TRUE(file.Append("1\n").ok());
  ASSERT_TRUE(file.Append("2\n").ok());
  clock.Advance(GrowingFile::kPartEvery);
  fake.s3()->SetFaults([](const HttpRequest&) { return Fault::kCut; });
  EXPECT_FALSE(file.Append("3\n").ok());
  // A store that is away is not asked again for every line.
  const int64_t requests = fake.s3()->requests();
  EXPECT_FALSE(file.Append("3\n").ok());
  EXPECT_EQ(fake.s3()->requests(), requests);
  fake.s3()->SetFaults(nullptr);
  clock.Advance(GrowingFile::kPartEvery);
  ASSERT_TRUE(file.Append("4\n").ok());
  EXPECT_EQ(Read(&file), "1\n2\n4\n");
}

// The part was written, and then the same lines come again with more.
TEST(GrowingFileTest, ALostAnswerRepeatsNoLine) {
  FakeS3Store fake;
  GrowingFile file(fake.store(), kName);
  const auto lose = [](const HttpRequest& request) {
    return request.method == "PUT" ? Fault::kLostAnswer : Fault::kNone;
  };
  fake.s3()->SetFaults(lose);
  EXPECT_FALSE(file.AppendNow("1\n").ok());
  fake.s3()->SetFaults(nullptr);
  ASSERT_TRUE(file.AppendNow("1\n2\n").ok());
  fake.s3()->SetFaults(lose);
  EXPECT_FALSE(file.AppendNow("3\n").ok());
  fake.s3()->SetFaults(nullptr);
  ASSERT_TRUE(file.AppendNow("3\n4\n").ok());
  EXPECT_EQ(Read(&file), "1\n2\n3\n4\n");
}

}  // namespace
}  // namespace weir
