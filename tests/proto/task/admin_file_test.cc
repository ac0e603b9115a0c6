#include "proto/task/admin_file.h"

#include <sys/stat.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/io/files.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

TEST(AdminFileTest, IsThereForItsUserWhileThePortIs) {
  const std::string workdir = MakeTempDir();
  const std::string path = workdir + "/admin";
  const auto server = AdminServer::Start({});
  ASSERT_TRUE(server.ok()) << server.status();
  {
    const AdminFile file(workdir, server->get());
    const auto text = Files::Real()->ReadAll(path);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, absl::StrCat("127.0.0.1:", (*server)->port(), "\n"));
    struct stat found = {};
    ASSERT_EQ(stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0600u);
  }
  EXPECT_FALSE(*Files::Real()->Exists(path));
}

TEST(AdminFileTest, IsNotThereWithoutAPortOrADirectory) {
  const std::string workdir = MakeTempDir();
  const AdminFile none(workdir, nullptr);
  EXPECT_FALSE(*Files::Real()->Exists(workdir + "/admin"));
  const auto server = AdminServer::Start({});
  const AdminFile nowhere("", server->get());
  const AdminFile lost(workdir + "/no/such", server->get());
}

}  // namespace
}  // namespace weir
