#include "proto/security/key_files.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
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

TEST(KeyFilesTest, ADirectoryOfATaskIsItsOwn) {
  const std::string dir = MakeTempDir() + "/worker-0";
  const TaskCertificate task = CertificateAuthority::Draw().Issue(
      {.job = "j", .role = PeerRole::kWorker, .index = 0});
  ASSERT_TRUE(WriteTaskCertificate(dir, task).ok());
  EXPECT_EQ(ModeOf(dir), 0700);
  EXPECT_EQ(ModeOf(dir + "/tls.key"), 0600);
  EXPECT_EQ(Read(dir + "/tls.key"), task.key);
  EXPECT_EQ(Read(dir + "/tls.crt"), task.certificate);
  EXPECT_EQ(Read(dir + "/ca.crt"), task.authority);
  EXPECT_TRUE(WriteTaskCertificate(dir, task).ok());  // renewed
}

TEST(KeyFilesTest, ALinkInAFilesPlaceIsReplaced) {
  const std::string dir = MakeTempDir();
  std::ofstream(dir + "/elsewhere") << "mine";
  std::filesystem::create_symlink(dir + "/elsewhere", dir + "/tls.key");
  const TaskCertificate task = CertificateAuthority::Draw().Issue(
      {.job = "j", .role = PeerRole::kPs, .index = 0});
  ASSERT_TRUE(WriteTaskCertificate(dir, task).ok());
  EXPECT_EQ(Read(dir + "/elsewhere"), "mine");
  EXPECT_EQ(Read(dir + "/tls.key"), task.key);
}

}  // namespace
}  // namespace weir
