// `weir trace` asks a ps in this process.
#include <cstdlib>
#include <string>
#include <vector>

#include "common/io/files.h"
#include "deploy/cli/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/common/temp_dir.h"
#include "tests/deploy/cli/command_line.h"
#include "tests/support/loopback_ps.h"

namespace weir {
namespace {

using testing::HasSubstr;

using Words = std::vector<std::string>;

struct Result {
  absl::StatusOr<int> code = 0;
  std::string out;
  std::string notes;

  std::string error() const { return std::string(code.status().message()); }
};

// Reads `weir trace FLAGS` and runs it.
Result Trace(Words flags) {
  for (const char* name : {"TF_CONFIG", "WEIR_CLUSTER"}) {
    ::unsetenv(name);
  }
  flags.insert(flags.begin(), "trace");
  const Command command = ReadCommandLine(AddTraceCommand, flags);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const absl::StatusOr<int> code = command();
  return {code, testing::internal::GetCapturedStdout(),
          testing::internal::GetCapturedStderr()};
}

void Write(const std::string& path, const std::string& text) {
  ASSERT_TRUE(Files::Real()->WriteAtomically(path, text).ok());
}

TEST(TraceTest, WritesTheTimelineOfAPsAndSaysHowToLookAtIt) {
  const LoopbackPs ps;
  const std::string out = MakeTempDir() + "/trace.json";
  const Result result = Trace(
      {"--cluster", "ps=" + ps.address(), "--seconds", "1", "--out", out});
  ASSERT_TRUE(result.code.ok()) << result.error();
  EXPECT_THAT(result.out, HasSubstr(out + ": "));
  EXPECT_THAT(result.out, HasSubstr("ui.perfetto.dev"));
  const auto text = Files::Real()->ReadAll(out);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto parsed = nlohmann::json::parse(*text);
  EXPECT_EQ(parsed["otherData"]["tasks"][0]["task"], "ps 0");
}

TEST(TraceTest, APsThatIsNotThereIsLeftOutAloud) {
  const LoopbackPs ps;
  const std::string out = MakeTempDir() + "/trace.json";
  const Result result =
      Trace({"--cluster", "ps=" + ps.address() + ",127.0.0.1:1", "--seconds",
             "1", "--out", out});
  ASSERT_TRUE(result.code.ok()) << result.error();
  EXPECT_THAT(result.notes, HasSubstr("ps 1 does not answer"));
  EXPECT_THAT(result.out, HasSubstr("of 1 tasks"));
}

TEST(TraceTest, TakesTheAddressesFromTheDirectoryOfARun) {
  const LoopbackPs ps;
  const std::string run = MakeTempDir();
  Write(run + "/cluster.json",
        "{\"cluster\":{\"ps\":[\"" + ps.address() + "\"]}}\n");
  const Result result =
      Trace({run, "--seconds", "1", "--out", run + "/trace.json"});
  ASSERT_TRUE(result.code.ok()) << result.error();
  EXPECT_TRUE(*Files::Real()->Exists(run + "/trace.json"));
}

TEST(TraceTest, SaysWhenThereIsNoJobOrNoneThatRuns) {
  EXPECT_THAT(Trace({}).error(), HasSubstr("give the directory of a run"));
  const std::string run = MakeTempDir();
  EXPECT_THAT(Trace({run}).error(), HasSubstr("this is no directory of a run"));
  Write(run + "/cluster.json", "{\"cluster\":{\"ps\":[\"127.0.0.1:1\"]}}\n");
  const std::string out = run + "/trace.json";
  const Result none = Trace({run, "--out", out});
  EXPECT_EQ(none.code.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(none.error(), HasSubstr("ps 0 does not answer"));
  EXPECT_FALSE(*Files::Real()->Exists(out)) << "no file without a trace";
  Write(run + "/DONE", "\n");
  const Result done = Trace({run});
  EXPECT_EQ(done.code.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(done.error(), HasSubstr("is over (DONE)"));
  Write(run + "/cluster.json", "no json");
}

TEST(TraceTest, FindsOutBeforeItRecordsThatTheFileCannotBeWritten) {
  const LoopbackPs ps;
  const Result result = Trace({"--cluster", "ps=" + ps.address(), "--seconds",
                               "60", "--out", "/nowhere/trace.json"});
  EXPECT_FALSE(result.code.ok());
  EXPECT_THAT(result.error(), HasSubstr("/nowhere/trace.json"));
}

TEST(TraceTest, RefusesTimesThatCannotBe) {
  for (const char* seconds : {"0", "61", "1000", "-1", "ten"}) {
    EXPECT_THROW(Trace({"--seconds", seconds}), WrongUsage) << seconds;
  }
}

}  // namespace
}  // namespace weir
