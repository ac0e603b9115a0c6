#include "proto/security/key_files.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/common/expect_error.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file),
          std::istreambuf_iterator<char>()};
}

mode_t ModeOf(const std::string& path) {
  struct stat facts = {};
  EXPECT_EQ(stat(path.c_str(), &facts), 0);
  return facts.st_mode & 0777;
}

TEST(KeyFilesTest, OnlyThisUserReadsWhatIsWritten) {
  const std::string dir = MakeTempDir();
  ASSERT_TRUE(WriteKeyFile(dir + "/key", "one").ok());
  EXPECT_EQ(Read(dir + "/key"), "one");
  EXPECT_EQ(ModeOf(dir + "/key"), 0600);
  // A file that others could read is replaced, and so is a link.
  std::ofstream(dir + "/open") << "old";
  std::filesystem::permissions(dir + "/open", std::filesystem::perms(0644));
  ASSERT_TRUE(WriteKeyFile(dir + "/open", "new").ok());
  EXPECT_EQ(ModeOf(dir + "/open"), 0600);
  std::filesystem::create_symlink(dir + "/key", dir + "/link");
  ASSERT_TRUE(WriteKeyFile(dir + "/link", "two").ok());
  EXPECT_EQ(Read(dir + "/key"), "one");
  EXPECT_EQ(Read(dir + "/link"), "two");
}

TEST(KeyFilesTest, LeavesNothingBehindWhenItFails) {
  const std::string dir = MakeTempDir();
  std::filesystem::create_directories(dir + "/taken/x");
  ExpectInvalid(WriteKeyFile(dir + "/taken", "one"), dir + "/taken: cannot be");
  ExpectInvalid(WriteKeyFile(dir + "/no/such", "one"), "No such file");
  int entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    EXPECT_EQ(entry.path().filename(), "taken");
    ++entries;
  }
  EXPECT_EQ(entries, 1);
}

TEST(KeyFilesTest, ADirectoryOfATaskIsItsOwn) {
  const std::string dir = MakeTempDir() + "/worker-0";
  const TaskCertificate task = CertificateAuthority::Draw().Issue(
      {.job = "j", .role = PeerRole::kWorker, .index = 0});
  ASSERT_TRUE(WriteTaskCertificate(dir, task).ok());
  EXPECT_EQ(ModeOf(dir), 0700);
  EXPECT_EQ(Read(dir + "/tls.key"), task.key);
  EXPECT_EQ(Read(dir + "/tls.crt"), task.certificate);
  EXPECT_EQ(Read(dir + "/ca.crt"), task.authority);
  EXPECT_TRUE(WriteTaskCertificate(dir, task).ok());  // renewed
}

}  // namespace
}  // namespace weir
