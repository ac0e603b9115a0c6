#include "server/ps/store/checkpoint_root.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using testing::HasSubstr;

TEST(CheckpointRootTest, WithoutOneEveryDirectoryWillDo) {
  EXPECT_TRUE(CheckBelowRoot("", "/etc").ok());
  EXPECT_TRUE(CheckBelowRoot("", "relative").ok());
}

TEST(CheckpointRootTest, TakesTheRootAndWhatIsBelow) {
  const std::string dir = MakeTempDir();
  for (const std::string& root : {dir, dir + "/", dir + "/not/there/yet"}) {
    EXPECT_TRUE(CheckBelowRoot(root, root).ok()) << root;
    EXPECT_TRUE(CheckBelowRoot(root, root + "/ckpt-1").ok()) << root;
    EXPECT_TRUE(CheckBelowRoot(root, root + "//ckpt-1/").ok()) << root;
  }
  EXPECT_TRUE(CheckBelowRoot("/", dir).ok());
}

TEST(CheckpointRootTest, RefusesWhatLiesElsewhere) {
  const std::string dir = MakeTempDir();
  const std::string root = dir + "/checkpoints";
  ASSERT_TRUE(std::filesystem::create_directory(root));
  ASSERT_TRUE(std::filesystem::create_directory(dir + "/checkpoints-b"));
  for (const std::string& path :
       {dir, dir + "/checkpoints-b", std::string("/etc"), std::string(),
        std::string("checkpoints"), root + "/../checkpoints-b",
        root + "/a/../b"}) {
    const absl::Status status = CheckBelowRoot(root, path);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << path;
    EXPECT_THAT(std::string(status.message()), HasSubstr("'" + root + "'"));
  }
}

TEST(CheckpointRootTest, FollowsLinks) {
  const std::string dir = MakeTempDir();
  const std::string root = dir + "/checkpoints";
  std::filesystem::create_directory(root);
  std::filesystem::create_directory(dir + "/elsewhere");
  std::filesystem::create_directory_symlink(dir + "/elsewhere", root + "/out");
  EXPECT_FALSE(CheckBelowRoot(root, root + "/out").ok());
  EXPECT_FALSE(CheckBelowRoot(root, root + "/out/ckpt-1").ok());
  // The root itself may be reached through one.
  std::filesystem::create_directory_symlink(root, dir + "/link");
  EXPECT_TRUE(CheckBelowRoot(dir + "/link", root + "/ckpt-1").ok());
  EXPECT_TRUE(CheckBelowRoot(root, dir + "/link/ckpt-1").ok());
}

}  // namespace
}  // namespace weir
