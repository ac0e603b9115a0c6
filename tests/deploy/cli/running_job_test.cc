#include "deploy/cli/running_job.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/common/expect_error.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

constexpr char kSecret[] =
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

// Without what the environment of the test may say.
RunningJobFlags FlagsFor(const std::string& workdir) {
  RunningJobFlags flags;
  flags.workdir = workdir;
  flags.sources = ClusterSources();
  flags.security = Security::Options();
  return flags;
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_read |
                                         std::filesystem::perms::owner_write);
}

std::string MakeRun() {
  const std::string dir = MakeTempDir();
  Write(dir + "/cluster.json",
        R"({"cluster":{"chief":["h:1"],"ps":["h:2"],"worker":["h:3"]}})");
  Write(dir + "/.secret", std::string(kSecret) + "\n");
  return dir;
}

TEST(RunningJobTest, ADirectoryOfARunSaysWhereItsTasksAre) {
  const auto job = FindRunningJob(FlagsFor(MakeRun()));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->chief_address, "h:1");
  EXPECT_EQ(job->cluster.ps_count(), 1);
  EXPECT_TRUE(job->security->secured());
}

TEST(RunningJobTest, AJobThatIsOverCannotBeAsked) {
  for (const char* over : {"DONE", "ENDED"}) {
    const std::string dir = MakeRun();
    Write(dir + "/" + over, "x");
    ExpectInvalid(FindRunningJob(FlagsFor(dir)).status(), over);
  }
}

TEST(RunningJobTest, AnyOtherDirectoryIsNamed) {
  const std::string dir = MakeTempDir();
  ExpectInvalid(FindRunningJob(FlagsFor(dir)).status(),
                dir + "/cluster.json cannot be read");
  const std::string broken = MakeRun();
  Write(broken + "/cluster.json", "{");
  EXPECT_FALSE(FindRunningJob(FlagsFor(broken)).ok());
}

TEST(RunningJobTest, WithoutADirectoryTheFlagsSayIt) {
  RunningJobFlags flags = FlagsFor("");
  flags.chief = "c:9";
  flags.security.secret = kSecret;
  const auto job = FindRunningJob(flags);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->chief_address, "c:9");
}

}  // namespace
}  // namespace weir
