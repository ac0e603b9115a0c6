// `weir page` prints a link that opens the page of a running job.
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/exit_code.h"
#include "deploy/cli/command.h"
#include "gtest/gtest.h"
#include "proto/admin/admin_server.h"
#include "proto/task/admin_file.h"
#include "proto/task/admin_flags.h"
#include "tests/common/temp_dir.h"
#include "tests/deploy/cli/command_line.h"

namespace weir {
namespace {

const std::string kSecret(64, 'a');

absl::StatusOr<std::string> Page(const std::string& arguments) {
  const Command command = ReadCommandLine(
      AddPageCommand,
      absl::StrSplit("page " + arguments, ' ', absl::SkipEmpty()));
  testing::internal::CaptureStdout();
  const absl::StatusOr<int> code = command();
  const std::string out = testing::internal::GetCapturedStdout();
  if (!code.ok()) {
    return code.status();
  }
  EXPECT_EQ(*code, kExitOk);
  return out;
}

void WriteSecret(const std::string& path) {
  std::ofstream(path) << kSecret << "\n";
  chmod(path.c_str(), 0600);
}

// The chief of a run, as far as its page goes.
class PageTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"WEIR_SECRET", "WEIR_SECRET_FILE", "WEIR_TLS_DIR", "WEIR_INSECURE",
          "WEIR_IDENTITY", "WEIR_ADMIN_SECRET_FILE"}) {
      unsetenv(name);
    }
    AdminServer::Options options;
    options.token = AdminToken(*JobSecret::Parse(kSecret));
    server_ = *AdminServer::Start(std::move(options));
  }

  std::string Link() const {
    return absl::StrCat("http://127.0.0.1:", server_->port(),
                        "/?token=", AdminToken(*JobSecret::Parse(kSecret)),
                        "\n");
  }

  std::unique_ptr<AdminServer> server_;
};

TEST_F(PageTest, PrintsTheLinkOfARunOfThisMachine) {
  const std::string workdir = MakeTempDir();
  const AdminFile file(workdir, server_.get());
  WriteSecret(workdir + "/.secret");
  const auto link = Page(workdir);
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ(*link, Link());
}

TEST_F(PageTest, TakesTheNewestRunThatHasAPage) {
  const std::string here = MakeTempDir();
  const std::string runs = here + "/runs";
  for (const char* run : {"/old", "/new", "/without"}) {
    std::filesystem::create_directories(runs + run);
    WriteSecret(runs + run + "/.secret");
  }
  std::ofstream(runs + "/old/admin") << "127.0.0.1:1\n";
  std::filesystem::last_write_time(
      runs + "/old/admin",
      std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  const AdminFile file(runs + "/new", server_.get());
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(here);
  const auto link = Page("");
  std::filesystem::current_path(before);
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ(*link, Link());
}

TEST_F(PageTest, TakesAnAddressAndASecretOfTheEnvironment) {
  setenv("WEIR_SECRET", kSecret.c_str(), 1);
  const auto link = Page(absl::StrCat("--address 127.0.0.1:", server_->port()));
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ(*link, Link());
}

TEST_F(PageTest, SaysWhatIsMissing) {
  const std::string workdir = MakeTempDir();
  auto link = Page(workdir);
  EXPECT_EQ(link.status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(absl::StrContains(link.status().message(), "--admin_port"))
      << link.status();
  link = Page(absl::StrCat("--address 127.0.0.1:", server_->port()));
  EXPECT_EQ(link.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(link.status().message(), "WEIR_SECRET_FILE"))
      << link.status();
}

TEST_F(PageTest, SaysThatNobodyAnswers) {
  setenv("WEIR_SECRET", kSecret.c_str(), 1);
  const std::string address = absl::StrCat("127.0.0.1:", server_->port());
  server_.reset();
  const auto link = Page("--address " + address);
  EXPECT_FALSE(link.ok());
  EXPECT_TRUE(absl::StrContains(link.status().message(),
                                "no page answers at " + address))
      << link.status();
}

}  // namespace
}  // namespace weir
