#include "deploy/launcher/task_door.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

std::string Name(const std::string& what) {
  return absl::StrCat("weir-task-door-test-", getpid(), "-", what);
}

TEST(TaskDoorTest, SaysWhetherTheProgramRuns) {
  const auto door = TaskDoor::Open(Name("runs"));
  ASSERT_TRUE(door.ok()) << door.status();
  EXPECT_TRUE(absl::IsUnavailable(KnockAtTask(Name("runs"))));
  (*door)->SetRuns(true);
  const absl::Status runs = KnockAtTask(Name("runs"));
  EXPECT_TRUE(runs.ok()) << runs;
  (*door)->SetRuns(false);
  EXPECT_TRUE(absl::IsUnavailable(KnockAtTask(Name("runs"))));
}

TEST(TaskDoorTest, WithoutATaskNobodyAnswers) {
  EXPECT_TRUE(absl::IsUnavailable(KnockAtTask(Name("nobody"))));
  { const auto door = TaskDoor::Open(Name("gone")); }
  EXPECT_TRUE(absl::IsUnavailable(KnockAtTask(Name("gone"))));
}

TEST(TaskDoorTest, ANameThatIsTakenIsAnError) {
  const auto door = TaskDoor::Open(Name("taken"));
  ASSERT_TRUE(door.ok()) << door.status();
  EXPECT_FALSE(TaskDoor::Open(Name("taken")).ok());
}

}  // namespace
}  // namespace weir
