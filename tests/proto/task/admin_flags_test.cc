#include "proto/task/admin_flags.h"

#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/proto/admin/http_client.h"

namespace weir {
namespace {

constexpr TaskId kChief = {.role = TaskRole::kChief, .index = 0};

Security::Options Secret(const std::string& secret) {
  Security::Options options;
  options.secret = secret;
  return options;
}

const std::string kSecret(64, 'a');

AdminFlags Parse(std::vector<std::string> words) {
  AdminFlags flags;
  CLI::App app;
  AddTaskAdminFlags(&app, &flags);
  app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  return flags;
}

TEST(AdminFlagsTest, IsOffWhereNobodyAsksForIt) {
  const auto server = StartAdmin(Parse({}), kChief, Secret(kSecret));
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(*server, nullptr);
}

TEST(AdminFlagsTest, SaysTheSameToAnotherProgram) {
  const std::vector<std::string> words = {
      "--admin_port", "0", "--admin_address", "::1", "--admin_may_miss"};
  EXPECT_EQ(Parse(words).Words(), words);
  EXPECT_EQ(Parse({}).Words(), std::vector<std::string>());
}

TEST(AdminFlagsTest, TakesAFreePortOfLoopback) {
  const auto server =
      StartAdmin(Parse({"--admin_port", "0"}), kChief, Secret(kSecret));
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_NE(*server, nullptr);
  EXPECT_TRUE(absl::StartsWith((*server)->address(), "127.0.0.1:"));
  const int port = (*server)->port();
  EXPECT_TRUE(absl::StartsWith(HttpGet(port, "/metrics"), "HTTP/1.1 401 "));
  const auto secret = JobSecret::Parse(kSecret);
  EXPECT_TRUE(absl::StrContains(
      HttpGet(
          port, "/metrics",
          absl::StrCat("Authorization: Bearer ", AdminToken(*secret), "\r\n")),
      "weir_task_info{role=\"chief\",index=\"0\",host=\""));
}

TEST(AdminFlagsTest, OpensMetricsAtAnAddressThatWasAskedFor) {
  const auto server =
      StartAdmin(Parse({"--admin_port", "0", "--admin_address", "127.0.0.1"}),
                 kChief, Secret(kSecret));
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_TRUE(absl::StartsWith(HttpGet((*server)->port(), "/metrics"),
                               "HTTP/1.1 200 "));
}

TEST(AdminFlagsTest, FailsWhereThePortIsInUseUnlessItMayMiss) {
  const auto first =
      StartAdmin(Parse({"--admin_port", "0"}), kChief, Secret(kSecret));
  ASSERT_TRUE(first.ok());
  const std::string port = absl::StrCat((*first)->port());
  const auto second =
      StartAdmin(Parse({"--admin_port", port}), kChief, Secret(kSecret));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(second.status().message(), "--admin_port"));
  const auto third =
      StartAdmin(Parse({"--admin_port", port, "--admin_may_miss"}), kChief,
                 Secret(kSecret));
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(*third, nullptr);
}

TEST(AdminFlagsTest, HasATokenThatSaysNothingOfTheSecret) {
  const auto token = AdminTokenOf({}, Secret(kSecret));
  ASSERT_TRUE(token.ok());
  EXPECT_EQ(token->size(), 64u);
  EXPECT_FALSE(absl::StrContains(kSecret, *token));
  EXPECT_EQ(*AdminTokenOf({}, Secret(kSecret)), *token);
  EXPECT_NE(*AdminTokenOf({}, Secret(std::string(64, 'b'))), *token);
  EXPECT_EQ(*AdminTokenOf({}, {}), "");
}

// Who has it may look, and takes no part in the job.
TEST(AdminFlagsTest, TakesASecretOfItsOwn) {
  const std::string path = MakeTempDir() + "/secret";
  std::ofstream(path) << std::string(64, 'c') << "\n";
  chmod(path.c_str(), 0600);
  setenv("WEIR_ADMIN_SECRET_FILE", path.c_str(), 1);
  const AdminFlags flags = AdminFlags::FromEnvironment();
  const auto token = AdminTokenOf(flags, Secret(kSecret));
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ(*token, *AdminTokenOf({}, Secret(std::string(64, 'c'))));
  chmod(path.c_str(), 0644);
  EXPECT_EQ(AdminTokenOf(flags, Secret(kSecret)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir
