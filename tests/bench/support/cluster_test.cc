#include "bench/support/cluster.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/support/loopback_ps.h"

namespace weir {
namespace {

TEST(ClusterTest, TheFirstDeclaresAndTheOthersFindTheJob) {
  LoopbackPs::Options options;
  options.declare = false;
  const LoopbackPs ps(options);
  const Declaration declaration = ps.MakeDeclaration();
  const auto first = JoinJob(ps.transport.get(), {ps.address()}, declaration,
                             /*slot=*/0, /*first=*/true);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = JoinJob(ps.transport.get(), {ps.address()}, declaration,
                              /*slot=*/1, /*first=*/false);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(first->job(), declaration.job());
  EXPECT_EQ(first->history(), declaration.history());
  EXPECT_NE(first->layout_fingerprint(), 0u);
  EXPECT_EQ(second->layout_fingerprint(), first->layout_fingerprint());
  EXPECT_EQ(first->slot(), 0u);
  EXPECT_EQ(second->slot(), 1u);
  EXPECT_EQ(second->generation(), 1u);
  const auto hello = ps.link->Hello(std::chrono::seconds(20));
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_EQ(hello->state(), ACTIVE) << "the slots were granted";
}

TEST(ClusterTest, HearsWhatWasSaid) {
  const std::string path = MakeTempDir() + "/word";
  ASSERT_TRUE(Say(path, "go\n").ok());
  EXPECT_EQ(*Hear(path, 1), "go\n");
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  EXPECT_EQ(Hear(path + "2", 0.01).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Say(path + "/below/a/file", "x").code(),
            absl::StatusCode::kUnavailable);
}

TEST(ClusterTest, ARunDirectoryGoesWithItsObject) {
  auto directory = RunDirectory::Create();
  ASSERT_TRUE(directory.ok()) << directory.status();
  const std::string path = (*directory)->path();
  ASSERT_TRUE(Say(path + "/file", "x").ok());
  directory->reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(ClusterTest, TheEnvironmentNamesTheBinaries) {
  ::setenv("WEIR_BIN_DIR", "/some/bin", 1);
  EXPECT_EQ(BinDir(), "/some/bin");
  EXPECT_EQ(OwnBinary(),
            std::filesystem::read_symlink("/proc/self/exe").string());
}

}  // namespace
}  // namespace weir
