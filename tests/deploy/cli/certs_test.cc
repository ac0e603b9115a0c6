// `weir certs` writes what --tls_dir of each task takes.
#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_split.h"
#include "common/base/exit_code.h"
#include "common/io/files.h"
#include "deploy/cli/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/security/security.h"
#include "tests/common/expect_error.h"
#include "tests/common/temp_dir.h"
#include "tests/deploy/cli/command_line.h"

namespace weir {
namespace {

absl::StatusOr<int> Certs(const std::string& flags) {
  const Command command =
      ReadCommandLine(AddCertsCommand,
                      absl::StrSplit("certs " + flags, ' ', absl::SkipEmpty()));
  testing::internal::CaptureStdout();
  auto code = command();
  testing::internal::GetCapturedStdout();
  return code;
}

absl::StatusOr<std::shared_ptr<const Security>> Open(const std::string& dir,
                                                     PeerRole role, int index) {
  Security::Options options;
  options.tls_dir = dir;
  return Security::Create(options, role, index);
}

std::string Read(const std::string& path) {
  return Files::Real()->ReadAll(path).value_or("");
}

TEST(CertsTest, EachTaskGetsItsOwn) {
  const std::string out = MakeTempDir() + "/certs";
  ASSERT_TRUE(Certs("--job my-job --ps 2 --workers 3 --out " + out).ok());
  const auto worker = Open(out + "/worker-2", PeerRole::kWorker, 2);
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ((*worker)->self().ToUri(), "weir://my-job/worker/2");
  EXPECT_TRUE(Open(out + "/ps-1", PeerRole::kPs, 1).ok());
  EXPECT_TRUE(Open(out + "/chief-0", PeerRole::kChief, 0).ok());
  EXPECT_TRUE(Open(out + "/reader-0", PeerRole::kReader, 0).ok());
  EXPECT_TRUE(Open(out + "/admin-0", PeerRole::kAdmin, 0).ok());
  EXPECT_FALSE(std::filesystem::exists(out + "/worker-3"));
}

TEST(CertsTest, ALaterRunRenewsThemUnderTheSameAuthority) {
  const std::string out = MakeTempDir() + "/certs";
  const std::string flags = "--job j --out " + out;
  ASSERT_TRUE(Certs(flags).ok());
  const std::string authority = Read(out + "/ca.crt");
  const std::string before = Read(out + "/ps-0/tls.crt");
  ASSERT_TRUE(Certs(flags).ok());
  EXPECT_EQ(Read(out + "/ca.crt"), authority);
  EXPECT_EQ(Read(out + "/ps-0/ca.crt"), authority);
  EXPECT_NE(Read(out + "/ps-0/tls.crt"), before);
}

TEST(CertsTest, WritesThoseOfASecret) {
  ::setenv("WEIR_SECRET", "0123456789abcdef0123456789abcdef", 1);
  const std::string out = MakeTempDir() + "/certs";
  ASSERT_TRUE(Certs("--from_secret --out " + out).ok());
  const auto files = Open(out + "/worker-0", PeerRole::kWorker, 0);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto secret = Security::Create(Security::Options::FromEnvironment(),
                                       PeerRole::kWorker, 0);
  ASSERT_TRUE(secret.ok());
  EXPECT_EQ((*files)->self().ToUri(), (*secret)->self().ToUri());
  EXPECT_FALSE(std::filesystem::exists(out + "/ca.key"));
  ::unsetenv("WEIR_SECRET");
}

TEST(CertsTest, SaysWhatIsMissing) {
  ::unsetenv("WEIR_SECRET");
  const std::string out = MakeTempDir();
  ExpectInvalid(Certs("--out " + out).status(), "say --job NAME");
  ExpectInvalid(Certs("--job j --from_secret --out " + out).status(),
                "say --job NAME");
  ExpectInvalid(Certs("--job a/b --out " + out).status(), "--job 'a/b' is not");
  ExpectInvalid(Certs("--from_secret --out " + out).status(),
                "neither WEIR_SECRET nor WEIR_SECRET_FILE is set");
  // A directory cannot be made where a file is.
  ASSERT_TRUE(Files::Real()->WriteAtomically(out + "/file", "").ok());
  EXPECT_THAT(
      std::string(Certs("--job j --out " + out + "/file/x").status().message()),
      testing::StartsWith("--out: "));
  ASSERT_TRUE(Files::Real()->WriteAtomically(out + "/ca.key", "junk").ok());
  ASSERT_TRUE(Files::Real()->WriteAtomically(out + "/ca.crt", "junk").ok());
  ExpectInvalid(Certs("--job j --out " + out).status(), out);
}

}  // namespace
}  // namespace weir
