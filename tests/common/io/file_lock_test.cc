#include "common/io/file_lock.h"

#include <cerrno>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "common/io/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using testing::HasSubstr;

TEST(FileLockTest, OneAtATimeHasItAndSaysWho) {
  const std::string path = MakeTempDir() + "/lock";
  auto first = Files::Real()->TryLock(path, "the first");
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = Files::Real()->TryLock(path, "the second");
  EXPECT_EQ(second.status(), absl::AlreadyExistsError("the first"));
  first->reset();
  EXPECT_TRUE(Files::Real()->TryLock(path, "2nd").ok());
  EXPECT_EQ(*Files::Real()->ReadAll(path), "2nd\n");
}

TEST(FileLockTest, SaysWhereThereAreNoLocks) {
  const std::string path = MakeTempDir() + "/lock";
  const auto lock = LockFile(path, "me", [](int, int) {
    errno = ENOLCK;
    return -1;
  });
  EXPECT_EQ(lock.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(lock.status().message()), HasSubstr(path));
}

TEST(FileLockTest, AFileThatWasRemovedIsNoLock) {
  const std::string path = MakeTempDir() + "/lock";
  // Between opening and locking somebody tidies up.
  const auto lock = LockFile(path, "me", [&](int, int) {
    EXPECT_TRUE(std::filesystem::remove(path));
    return 0;
  });
  EXPECT_EQ(lock.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(Files::Real()->TryLock(path, "me").ok());
}

TEST(FileLockTest, AnUnusablePathIsNamed) {
  const auto lock = Files::Real()->TryLock("/proc/no/such/lock", "me");
  EXPECT_EQ(lock.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(lock.status().message()),
              HasSubstr("/proc/no/such/lock"));
}

}  // namespace
}  // namespace weir
