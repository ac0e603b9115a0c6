#include "common/io/growing_file.h"

#include <chrono>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/io/files.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/support/fake_s3_store.h"

namespace weir {
namespace {

using Fault = FakeS3::Fault;

constexpr char kName[] = "s3://bucket/run/train.jsonl";

TEST(GrowingFileTest, IsOneFileOnADisk) {
  const std::string path = MakeTempDir() + "/train.jsonl";
  GrowingFile file(Files::Real(), path);
  EXPECT_TRUE(absl::IsNotFound(file.ReadAll().status()));
  ASSERT_TRUE(file.Append("1\n").ok());
  ASSERT_TRUE(file.Append("2\n").ok());
  EXPECT_EQ(*Files::Real()->ReadAll(path), "1\n2\n");
  EXPECT_EQ(*file.ReadAll(), "1\n2\n");
  ASSERT_TRUE(file.Replace("3\n").ok());
  ASSERT_TRUE(file.Append("4\n").ok());
  EXPECT_EQ(*file.ReadAll(), "3\n4\n");
}

TEST(GrowingFileTest, IsPartsInAnObjectStore) {
  FakeS3Store fake;
  FakeClock clock;
  GrowingFile file(fake.store(), kName, &clock);
  EXPECT_TRUE(absl::IsNotFound(file.ReadAll().status()));
  ASSERT_TRUE(file.Append("1\n").ok());  // the first one is seen at once
  EXPECT_EQ(*file.ReadAll(), "1\n");
  ASSERT_TRUE(file.Append("2\n").ok());
  EXPECT_EQ(*file.ReadAll(), "1\n");
  clock.Advance(GrowingFile::kPartEvery);
  ASSERT_TRUE(file.Append("3\n").ok());
  EXPECT_EQ(*file.ReadAll(), "1\n2\n3\n");
  ASSERT_TRUE(file.Append("4\n").ok());
  ASSERT_TRUE(file.Flush().ok());
  EXPECT_EQ(*file.ReadAll(), "1\n2\n3\n4\n");
  EXPECT_EQ(fake.s3()->keys(),
            (std::vector<std::string>{"run/train.jsonl.part-00000001",
                                      "run/train.jsonl.part-00000002",
                                      "run/train.jsonl.part-00000003"}));
  // Another process goes on behind them.
  GrowingFile next(fake.store(), kName, &clock);
  ASSERT_TRUE(next.Append("5\n").ok());
  EXPECT_EQ(*file.ReadAll(), "1\n2\n3\n4\n5\n");
  ASSERT_TRUE(file.Append("6\n").ok());
  ASSERT_TRUE(file.Flush().ok());  // its next number is taken
  EXPECT_EQ(*next.ReadAll(), "1\n2\n3\n4\n5\n6\n");
  ASSERT_TRUE(next.Replace("1\n2\n").ok());
  EXPECT_EQ(fake.s3()->keys(), std::vector<std::string>{"run/train.jsonl"});
  EXPECT_EQ(*file.ReadAll(), "1\n2\n");
}

TEST(GrowingFileTest, AReplaceThatIsCutShortRepeatsNothing) {
  FakeS3Store fake;
  GrowingFile file(fake.store(), kName);
  ASSERT_TRUE(file.Append("1\n").ok());
  ASSERT_TRUE(file.Append("2\n").ok());
  ASSERT_TRUE(file.Flush().ok());
  fake.s3()->SetFaults([](const HttpRequest& request) {
    return request.method == "DELETE" ? Fault::kCut : Fault::kNone;
  });
  EXPECT_FALSE(file.Replace("1\n2\n").ok());
  fake.s3()->SetFaults(nullptr);
  EXPECT_EQ(*file.ReadAll(), "1\n2\n");
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
  fake.s3()->SetFaults(nullptr);
  ASSERT_TRUE(file.Append("4\n").ok());
  EXPECT_EQ(*file.ReadAll(), "1\n2\n4\n");
}

}  // namespace
}  // namespace weir
