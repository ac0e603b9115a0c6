#include <cstdlib>
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

using testing::EndsWith;
using testing::HasSubstr;

struct Result {
  absl::StatusOr<int> code = 0;
  std::string out;

  std::string error() const { return std::string(code.status().message()); }
};

// Runs `weir config WORDS`: what it returns to main and what it prints.
Result RunConfig(std::vector<std::string> flags) {
  flags.insert(flags.begin(), "config");
  const Command command = ReadCommandLine(AddConfigCommand, flags);
  testing::internal::CaptureStdout();
  const absl::StatusOr<int> code = command();
  return {code, testing::internal::GetCapturedStdout()};
}

Result Check(std::vector<std::string> flags) {
  flags.insert(flags.begin(), "check");
  return RunConfig(flags);
}

std::string WriteJob(const std::string& batch_size,
                     const std::string& input = "flat",
                     const std::string& source = "digits { count: 9 }") {
  const std::string path = MakeTempDir() + "/job.textproto";
  const std::string text =
      "name: 'j' model { layer { name: 'flat' flatten {} } "
      "layer { name: 'o' input: '" +
      input +
      "' dense { units: 2 } } loss { mean_squared_error {} } } "
      "data { train { " +
      source + " } } train { batch_size: " + batch_size +
      " steps: 3 } optimizer { sgd {} } schedule { learning_rate: 0.1 }";
  EXPECT_TRUE(Files::Real()->WriteAtomically(path, text).ok());
  return path;
}

class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"TF_CONFIG", "WEIR_CLUSTER", "WEIR_TASK_TYPE", "WEIR_TASK_INDEX"}) {
      ::unsetenv(name);
    }
  }
};

TEST_F(ConfigTest, PrintsTheClusterOfTfConfig) {
  ::setenv("TF_CONFIG",
           R"({"cluster":{"ps":["P:1"],"worker":["w:2"]},)"
           R"("task":{"type":"worker","index":0}})",
           1);
  const Result result = Check({});
  ASSERT_TRUE(result.code.ok()) << result.error();
  EXPECT_EQ(*result.code, 0);
  EXPECT_THAT(result.out, HasSubstr("task worker/0\nps/0 p:1\nworker/0 w:2\n"
                                    "worker/0 hosts the chief\nfingerprint "));
}

TEST_F(ConfigTest, FlagsGiveAClusterWithOrWithoutATask) {
  EXPECT_THAT(Check({"--cluster", "ps=p:1;worker=w:2"}).out,
              HasSubstr("ps/0 p:1"));
  EXPECT_THAT(Check({"--cluster", "ps=p:1;worker=w:2", "--task_type", "ps",
                     "--task_index", "0"})
                  .out,
              HasSubstr("task ps/0"));
  EXPECT_THAT(Check({}).out, HasSubstr("local"));
}

TEST_F(ConfigTest, PrintsTheHashWhichFollowsTheOverrides) {
  const std::string job = WriteJob("4");
  const Result plain = Check({"--job", job});
  EXPECT_THAT(plain.out, HasSubstr("job j\nhash "));
  EXPECT_EQ(Check({"--job", job, "--set", "train.batch_size=4"}).out,
            plain.out);
  EXPECT_NE(Check({"--job", job, "--set", "train.batch_size=5"}).out,
            plain.out);
  EXPECT_THAT(
      Check({"--job", job, "--set", "seed=3", "--set", "update.sync={}"}).out,
      HasSubstr("hash "));
}

TEST_F(ConfigTest, SaysWhereTheModelCannotBeChecked) {
  const std::string job =
      WriteJob("1", "falt", "idx { images: 'i.gz' labels: 'l.gz' }");
  EXPECT_THAT(Check({"--job", job}).out,
              EndsWith("\nmodel not checked: the size of its images is in the "
                       "file\n"));
}

TEST_F(ConfigTest, EveryMistakeIsOneLineAndCodeTwo) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--cluster", "nonsense"}, "--cluster: 'nonsense' is not role="},
      {{"--job", "/absent.textproto"},
       "cannot open /absent.textproto: No such"},
      {{"--job", WriteJob("0")}, "train.batch_size: 0 is not in"},
      {{"--job", WriteJob("x")}, "job.textproto:1:"},
      {{"--job", WriteJob("1", "falt")},
       "model.layer[1] 'o': input 'falt' names no earlier layer"},
      {{"--job", WriteJob("1"), "--set", "a=b"}, "--set 'a=b': there is no"},
      {{"--set", "a=b"}, "--set needs --job FILE"},
  };
  for (const auto& [flags, want] : cases) {
    const Result result = Check(flags);
    EXPECT_EQ(ExitCodeFor(result.code.status()), 2) << want;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.error(), HasSubstr(want));
    EXPECT_EQ(result.error().find('\n'), std::string::npos) << result.error();
  }
}

TEST_F(ConfigTest, ExplainsAField) {
  const Result result = RunConfig({"explain", "train.batch_size"});
  ASSERT_TRUE(result.code.ok()) << result.error();
  EXPECT_EQ(result.out,
            "train.batch_size: uint32; in [1, 16777216]\n"
            "  Samples of one contribution, all devices together.\n");
  EXPECT_THAT(RunConfig({"explain"}).out, HasSubstr("  train  "));
  const Result wrong = RunConfig({"explain", "train.batchsize"});
  EXPECT_EQ(ExitCodeFor(wrong.code.status()), 2);
  EXPECT_THAT(wrong.error(), HasSubstr("did you mean 'batch_size'?"));
}

// After a change of job_spec.proto: weir config explain --markdown
// > docs/job_spec.md
TEST_F(ConfigTest, ThePageOfTheDocumentationIsUpToDate) {
  const absl::StatusOr<std::string> page =
      Files::Real()->ReadAll("docs/job_spec.md");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(RunConfig({"explain", "--markdown"}).out, *page);
}

}  // namespace
}  // namespace weir
