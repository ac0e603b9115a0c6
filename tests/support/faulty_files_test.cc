#include "tests/support/faulty_files.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

TEST(FaultyFilesTest, FailsTheNthCallOnceAndStickyOnesForEver) {
  FaultyFiles files(Files::Real());
  const std::string dir = MakeTempDir();
  files.FailCall(2, absl::InternalError("EIO"));
  EXPECT_TRUE(files.Stat(dir).ok());
  EXPECT_TRUE(absl::IsInternal(files.Stat(dir).status()));
  EXPECT_TRUE(files.Stat(dir).ok());
  EXPECT_EQ(files.calls(), 3);
  files.FailCall(1, absl::InternalError("EIO"), /*sticky=*/true);
  EXPECT_FALSE(files.List(dir).ok());
  EXPECT_FALSE(files.SyncDirectory(dir).ok());
  EXPECT_FALSE(files.MakeDirectories(dir).ok());
  EXPECT_FALSE(files.Remove(dir).ok());
  EXPECT_FALSE(files.Open(dir).ok());
  EXPECT_FALSE(files.OpenAppend(dir + "/a").ok());
}

TEST(FaultyFilesTest, FailingAppendLeavesHalfAndReadsAreCounted) {
  FaultyFiles files(Files::Real());
  const std::string path = MakeTempDir() + "/a";
  files.FailCall(2, absl::ResourceExhaustedError("full"));
  auto writer = files.Create(path);
  ASSERT_TRUE(writer.ok());
  EXPECT_FALSE((*writer)->Append("0123456789", 10).ok());
  EXPECT_EQ(*Files::Real()->ReadAll(path), "01234");
  files.FailCall(2, absl::InternalError("EIO"));
  const absl::Status status = files.ReadAll(path).status();
  EXPECT_EQ(status.message(), "cannot read " + path + ": EIO");
}

}  // namespace
}  // namespace weir
