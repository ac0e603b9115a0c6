// How the command line of `weir render` is read, and where its files go.
#include <string>
#include <vector>

#include "common/base/exit_code.h"
#include "common/io/files.h"
#include "deploy/cli/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/deploy/cli/command_line.h"

namespace weir {
namespace {

using testing::HasSubstr;

using Words = std::vector<std::string>;

constexpr char kJob[] = "examples/digits.textproto";

absl::StatusOr<int> RunRender(Words flags, const Words& words = {}) {
  flags.insert(flags.begin(), "render");
  const Command command = ReadCommandLine(
      [&](CLI::App* app, Command* command) {
        AddRenderCommand(app, words, command);
      },
      flags);
  return command();
}

std::string ErrorOf(const Words& flags, const Words& words = {}) {
  const absl::Status status = RunRender(flags, words).status();
  // Exit code 2, as of every wrong command line.
  EXPECT_EQ(ExitCodeFor(status), kExitUsage) << status;
  return std::string(status.message());
}

std::string Read(const std::string& path) {
  return Files::Real()->ReadAll(path).value_or("");
}

TEST(RenderCommandLineTest, WritesTheFileThatOutNames) {
  const std::string out = MakeTempDir() + "/out.yaml";
  const auto code = RunRender(
      {"k8s", "--set", "train.epochs=2", kJob, "--ps", "3", "--out", out});
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(*code, kExitOk);
  EXPECT_THAT(Read(out), HasSubstr("digits-ps-2.digits:2222"));
  EXPECT_THAT(Read(out), HasSubstr("--set=train.epochs=2"));
  // The job has an evaluation, and nobody said --noevaluator.
  EXPECT_THAT(Read(out), HasSubstr("name: digits-evaluator"));
  EXPECT_THAT(Read(out), HasSubstr("image: weir:"));
}

TEST(RenderCommandLineTest, TakesTheOppositeOfAFlag) {
  const std::string out = MakeTempDir() + "/out.yaml";
  ASSERT_TRUE(
      RunRender({"k8s", kJob, "--noevaluator", "--nochief", "--out", out})
          .ok());
  EXPECT_THAT(Read(out), testing::Not(HasSubstr("evaluator")));
  EXPECT_THAT(Read(out), testing::Not(HasSubstr("chief")));
}

TEST(RenderCommandLineTest, GivesTheChiefWhatItsOwnMessagesAskFor) {
  const std::string out = MakeTempDir() + "/out.yaml";
  ASSERT_TRUE(RunRender({"k8s", kJob, "--allow_older", "--allow_unguarded",
                         "--checkpoints", "s3://bucket/run", "--out", out})
                  .ok());
  EXPECT_THAT(Read(out), HasSubstr("- --allow_older\n"));
  EXPECT_THAT(Read(out), HasSubstr("- --allow_unguarded\n"));
}

TEST(RenderCommandLineTest, WritesTheRecipeOfAnImage) {
  const std::string folder = MakeTempDir();
  ASSERT_TRUE(
      RunRender({"slurm", "--workers", "4", "--image", "me/train:1", "--out",
                 folder + "/job.sh", "--containerfile", folder + "/C"},
                {"python", "train.py"})
          .ok());
  EXPECT_THAT(Read(folder + "/C"), HasSubstr("podman build -t me/train:1"));
  EXPECT_THAT(Read(folder + "/job.sh"), HasSubstr("-- python train.py \\\n"));
}

TEST(RenderCommandLineTest, SaysWhatIsWrong) {
  EXPECT_THAT(ErrorOf({"helm", kJob}), HasSubstr("'helm' is no target"));
  EXPECT_THAT(ErrorOf({"k8s"}), HasSubstr("name a job file"));
  EXPECT_THAT(ErrorOf({"k8s", kJob, "train.py"}),
              HasSubstr("write -- before a program"));
  EXPECT_THAT(ErrorOf({"k8s", kJob, "--containerfile", "C"}),
              HasSubstr("--containerfile is for a user's program"));
  EXPECT_THAT(ErrorOf({"k8s", kJob, "--ps", "0"}), HasSubstr("--ps 0"));
}

TEST(RenderCommandLineTest, RefusesFlagsThatThereAreNot) {
  for (const Words& flags : {Words{"k8s", kJob, "--helm"},
                             Words{"k8s", kJob, "--ps", "two"}, Words{}}) {
    EXPECT_THROW(RunRender(flags).IgnoreError(), WrongUsage);
  }
}

}  // namespace
}  // namespace weir
