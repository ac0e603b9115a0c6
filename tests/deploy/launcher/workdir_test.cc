#include "deploy/launcher/workdir.h"

#include <filesystem>
#include <string>

#include "common/io/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

// Each test has an empty current directory.
class WorkdirTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::current_path(MakeTempDir()); }

  static void MakeRun(const std::string& name, bool has_checkpoint) {
    std::string path = "runs/" + name;
    ASSERT_TRUE(Files::Real()->MakeDirectories(path).ok());
    if (has_checkpoint) {
      path += "/checkpoints/ckpt-5";
      ASSERT_TRUE(Files::Real()->MakeDirectories(path).ok());
      ASSERT_TRUE(
          Files::Real()->WriteAtomically(path + "/manifest.json", "{}").ok());
    }
  }
};

TEST_F(WorkdirTest, ANewRunIsCalledByItsJobAndTheTime) {
  const auto workdir = DefaultWorkdir("mnist", /*resume=*/false);
  ASSERT_TRUE(workdir.ok()) << workdir.status();
  EXPECT_THAT(*workdir, MatchesRegex("runs/mnist-[0-9]{8}-[0-9]{6}"));
  EXPECT_FALSE(std::filesystem::exists("runs")) << "it only makes a name";
}

TEST_F(WorkdirTest, WithoutARunThereIsNothingToResume) {
  const auto none = DefaultWorkdir("mnist", /*resume=*/true);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(none.status().message()),
              HasSubstr("no earlier run of 'mnist'"));
  MakeRun("other-20260101-000000", /*has_checkpoint=*/true);
  EXPECT_FALSE(DefaultWorkdir("mnist", /*resume=*/true).ok());
}

TEST_F(WorkdirTest, ResumesTheNewestRunThatHasACheckpoint) {
  MakeRun("mnist-20260101-000000", /*has_checkpoint=*/true);
  MakeRun("mnist-20260102-000000", /*has_checkpoint=*/true);
  MakeRun("mnist-20260103-000000", /*has_checkpoint=*/false);
  MakeRun("other-20260104-000000", /*has_checkpoint=*/true);
  EXPECT_EQ(*DefaultWorkdir("mnist", /*resume=*/true),
            "runs/mnist-20260102-000000");
}

TEST_F(WorkdirTest, ResumesTheNewestRunIfNoneHasACheckpoint) {
  MakeRun("mnist-20260102-000000", /*has_checkpoint=*/false);
  MakeRun("mnist-20260101-235959", /*has_checkpoint=*/false);
  EXPECT_EQ(*DefaultWorkdir("mnist", /*resume=*/true),
            "runs/mnist-20260102-000000");
}

TEST_F(WorkdirTest, OnlyWhatARunWouldDestroyMakesADirectoryTaken) {
  EXPECT_TRUE(CheckHoldsNoRun("absent").ok());
  ASSERT_TRUE(Files::Real()->MakeDirectories("w/logs").ok());
  ASSERT_TRUE(Files::Real()->WriteAtomically("w/job.textproto", "").ok());
  EXPECT_TRUE(CheckHoldsNoRun("w").ok());
  ASSERT_TRUE(Files::Real()->WriteAtomically("w/train.jsonl", "").ok());
  const absl::Status taken = CheckHoldsNoRun("w");
  EXPECT_EQ(taken.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(taken.message()),
              HasSubstr("w holds an earlier run (train.jsonl)"));
  ASSERT_TRUE(Files::Real()->MakeDirectories("v/checkpoints").ok());
  EXPECT_FALSE(CheckHoldsNoRun("v").ok());
}

}  // namespace
}  // namespace weir
