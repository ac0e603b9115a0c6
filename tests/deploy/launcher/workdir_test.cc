#include "deploy/launcher/workdir.h"

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/io/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
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

TEST_F(WorkdirTest, NewRunsAreCalledByTheirJobAndTheTimeAndHaveADirectoryEach) {
  std::vector<Workdir> runs;
  std::set<std::string> names;
  // Most of them begin in one second.
  for (int i = 0; i < 5; ++i) {
    auto run = PrepareWorkdir({.name = "mnist"});
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_THAT(run->path, MatchesRegex(".*/runs/mnist-[0-9]{8}-[0-9]{6}"));
    names.insert(run->path);
    runs.push_back(*std::move(run));
  }
  EXPECT_EQ(names.size(), runs.size());
}

TEST_F(WorkdirTest, ADirectoryHasOneLauncherAtATime) {
  auto first = PrepareWorkdir({.workdir = "w", .name = "j"});
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(Files::Real()->WriteAtomically("w/job.textproto", "").ok());
  std::vector<WorkdirUse> uses(3, {.workdir = "w", .name = "j"});
  uses[1].resume = true;
  uses[1].mark = "job.textproto";
  uses[2].exclusive = false;
  for (const WorkdirUse& use : uses) {
    const auto second = PrepareWorkdir(use);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(second.status().message()),
                HasSubstr("w is in use by another launcher, process "));
  }
  first->lock.reset();  // as when its process ends
  for (const WorkdirUse& use : uses) {
    const auto next = PrepareWorkdir(use);
    EXPECT_TRUE(next.ok()) << next.status();
  }
}

TEST_F(WorkdirTest, WithoutARunThereIsNothingToResume) {
  const auto none = NewestRun("mnist");
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(none.status().message()),
              HasSubstr("no earlier run of 'mnist'"));
  MakeRun("other-20260101-000000", /*has_checkpoint=*/true);
  EXPECT_FALSE(NewestRun("mnist").ok());
}

TEST_F(WorkdirTest, ResumesTheNewestRunThatHasACheckpoint) {
  MakeRun("mnist-20260101-000000", /*has_checkpoint=*/true);
  MakeRun("mnist-20260102-000000", /*has_checkpoint=*/true);
  MakeRun("mnist-20260103-000000", /*has_checkpoint=*/false);
  MakeRun("other-20260104-000000", /*has_checkpoint=*/true);
  EXPECT_EQ(*NewestRun("mnist"), "runs/mnist-20260102-000000");
}

TEST_F(WorkdirTest, ResumesTheNewestRunIfNoneHasACheckpoint) {
  MakeRun("mnist-20260102-000000", /*has_checkpoint=*/false);
  MakeRun("mnist-20260101-235959", /*has_checkpoint=*/false);
  EXPECT_EQ(*NewestRun("mnist"), "runs/mnist-20260102-000000");
}

TEST_F(WorkdirTest, AJobHasNoPartInTheRunsOfALongerName) {
  MakeRun("a-b-20260104-000000", /*has_checkpoint=*/true);
  MakeRun("a-20260104", /*has_checkpoint=*/true);
  EXPECT_FALSE(NewestRun("a").ok());
  MakeRun("a-20260101-000000", /*has_checkpoint=*/true);
  EXPECT_EQ(*NewestRun("a"), "runs/a-20260101-000000");
  EXPECT_EQ(*NewestRun("a-b"), "runs/a-b-20260104-000000");
}

TEST_F(WorkdirTest, OnlyWhatARunWouldDestroyMakesADirectoryTaken) {
  ASSERT_TRUE(Files::Real()->MakeDirectories("w/logs").ok());
  ASSERT_TRUE(Files::Real()->WriteAtomically("w/job.textproto", "").ok());
  auto free = PrepareWorkdir({.workdir = "w", .name = "j"});
  ASSERT_TRUE(free.ok()) << free.status();
  EXPECT_EQ(free->path, std::filesystem::current_path() / "w");
  free->lock.reset();
  ASSERT_TRUE(Files::Real()->WriteAtomically("w/train.jsonl", "").ok());
  const auto taken = PrepareWorkdir({.workdir = "w", .name = "j"});
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(taken.status().message()),
              HasSubstr("w holds an earlier run (train.jsonl)"));
  ASSERT_TRUE(Files::Real()->MakeDirectories("v/checkpoints").ok());
  EXPECT_FALSE(PrepareWorkdir({.workdir = "v", .name = "j"}).ok());
  // Logs alone are appended to.
  EXPECT_TRUE(
      PrepareWorkdir({.workdir = "v", .name = "j", .exclusive = false}).ok());
}

TEST_F(WorkdirTest, ResumesOnlyADirectoryThatHasTheMarkOfARun) {
  ASSERT_TRUE(Files::Real()->MakeDirectories("w").ok());
  const WorkdirUse use = {
      .workdir = "w", .name = "j", .resume = true, .mark = "job.textproto"};
  const auto unknown = PrepareWorkdir(use);
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.status().message()),
              HasSubstr("there is no run in "));
  ASSERT_TRUE(Files::Real()->WriteAtomically("w/job.textproto", "").ok());
  EXPECT_TRUE(PrepareWorkdir(use).ok());
  EXPECT_TRUE(std::filesystem::exists("w/logs"));
}

TEST_F(WorkdirTest, ShowsTheLinkOnceTheChiefHasSaidWhereItsPageIs) {
  ASSERT_TRUE(Files::Real()->MakeDirectories("w").ok());
  // An earlier chief was killed.
  ASSERT_TRUE(Files::Real()->WriteAtomically("w/admin", "10.0.0.1:1\n").ok());
  AdminFlags admin;
  admin.port = 0;
  Security::Options security;
  security.secret = std::string(64, 'a');
  std::vector<std::string> shown;
  PageAnnouncer page(admin, "w", security, [&shown](const std::string& line) {
    shown.push_back(line);
  });
  page.Poll();
  EXPECT_THAT(shown, IsEmpty());
  ASSERT_TRUE(Files::Real()->WriteAtomically("w/admin", "127.0.0.1:99\n").ok());
  page.Poll();
  page.Poll();
  EXPECT_THAT(shown, ElementsAre(MatchesRegex(
                         "page at http://127.0.0.1:99/\\?token=[0-9a-f]{64}")));
}

TEST_F(WorkdirTest, ShowsNoLinkThatNobodyAskedFor) {
  ASSERT_TRUE(Files::Real()->MakeDirectories("w").ok());
  ASSERT_TRUE(Files::Real()->WriteAtomically("w/admin", "127.0.0.1:99\n").ok());
  PageAnnouncer page({}, "w", {},
                     [](const std::string& line) { ADD_FAILURE() << line; });
  page.Poll();
}

TEST(PageLinkTest, HasNoTokenInAnInsecureJob) {
  EXPECT_EQ(PageLink("h:1", "ab"), "http://h:1/?token=ab");
  EXPECT_EQ(PageLink("h:1", ""), "http://h:1/");
}

}  // namespace
}  // namespace weir
