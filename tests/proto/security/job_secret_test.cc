#include "proto/security/job_secret.h"

#include <sys/stat.h>

#include <fstream>
#include <string>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"
#include "tests/common/expect_error.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

constexpr char kText[] = "0123456789abcdef0123456789abcdef";

std::string WriteFile(const std::string& text, mode_t mode) {
  const std::string path = MakeTempDir() + "/secret";
  std::ofstream(path) << text;
  chmod(path.c_str(), mode);
  return path;
}

TEST(JobSecretTest, DrawsAnotherOneEachTime) {
  const JobSecret first = JobSecret::Draw();
  EXPECT_EQ(first.text().size(), 64);
  EXPECT_NE(first.text(), JobSecret::Draw().text());
  EXPECT_TRUE(JobSecret::Parse(first.text()).ok());
}

TEST(JobSecretTest, DerivesAsHkdfDoes) {
  // By Python's hmac after RFC 5869, without a salt; info is b"weir job 1".
  const auto secret = JobSecret::Parse(kText);
  ASSERT_TRUE(secret.ok());
  EXPECT_EQ(absl::BytesToHexString(secret->Derive("weir job 1", 16)),
            "30c615de617106a18f157f8a3080efca");
  EXPECT_NE(secret->Derive("another", 16), secret->Derive("weir job 1", 16));
}

TEST(JobSecretTest, LeavesWhiteSpaceAroundItOut) {
  const auto secret = JobSecret::Parse(std::string(" ") + kText + "\r\n");
  ASSERT_TRUE(secret.ok());
  EXPECT_EQ(secret->text(), kText);
}

TEST(JobSecretTest, RefusesOneThatCanBeGuessedWithoutSayingIt) {
  const auto secret = JobSecret::Parse("hunter2");
  ExpectInvalid(secret.status(), "the secret has 7 characters");
  EXPECT_EQ(secret.status().message().find("hunter2"), std::string::npos);
  ExpectInvalid(JobSecret::Parse(std::string(5000, 'a')).status(),
                "the secret has 5000 characters");
}

TEST(JobSecretTest, ReadsAFileThatOthersCannotRead) {
  for (const mode_t mode : {0600, 0400, 0640}) {
    const auto secret = JobSecret::FromFile(WriteFile(kText, mode));
    ASSERT_TRUE(secret.ok()) << secret.status();
    EXPECT_EQ(secret->text(), kText);
  }
  for (const mode_t mode : {0644, 0602, 0620}) {
    ExpectInvalid(JobSecret::FromFile(WriteFile(kText, mode)).status(),
                  "can be read or changed by others; run: chmod 600 ");
  }
}

TEST(JobSecretTest, NamesTheFileThatItCannotRead) {
  ExpectInvalid(JobSecret::FromFile("/no/such/file").status(),
                "the secret's file /no/such/file: No such file");
  ExpectInvalid(JobSecret::FromFile("/dev/null").status(),
                "is not a regular file");
  const std::string fifo = MakeTempDir() + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  ExpectInvalid(JobSecret::FromFile(fifo).status(), "is not a regular file");
  const std::string empty = WriteFile("", 0600);
  ExpectInvalid(JobSecret::FromFile(empty).status(), empty);
}

}  // namespace
}  // namespace weir
