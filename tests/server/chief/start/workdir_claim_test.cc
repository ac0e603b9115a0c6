#include "server/chief/start/workdir_claim.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/io/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/support/faulty_files.h"

namespace weir {
namespace {

using testing::HasSubstr;

WorkdirClaim::Options OptionsFor(const std::string& directory) {
  WorkdirClaim::Options options;
  options.directory = directory;
  options.wait = std::chrono::milliseconds(0);
  return options;
}

TEST(WorkdirClaimTest, ASecondChiefHearsWhoHasIt) {
  const WorkdirClaim::Options options = OptionsFor(MakeTempDir());
  auto first = WorkdirClaim::Take(options);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE((*first)->exclusive());
  const auto second = WorkdirClaim::Take(options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("process ", getpid(), " on ")));
  first->reset();
  EXPECT_TRUE(WorkdirClaim::Take(options).ok());
}

TEST(WorkdirClaimTest, TheClaimOfAKilledProcessEnds) {
  WorkdirClaim::Options options = OptionsFor(MakeTempDir());
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto claim = WorkdirClaim::Take(options);
    const char byte = claim.ok() ? 1 : 0;
    (void)!write(ready[1], &byte, 1);
    pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 1);
  EXPECT_FALSE(WorkdirClaim::Take(options).ok());
  kill(child, SIGKILL);
  // The process is not reaped yet. Its end alone gives the lock back.
  options.wait = std::chrono::seconds(60);
  EXPECT_TRUE(WorkdirClaim::Take(options).ok());
  waitpid(child, nullptr, 0);
}

TEST(WorkdirClaimTest, TheSecretStaysWithTheDirectoryAndIsNobodyElses) {
  const WorkdirClaim::Options options = OptionsFor(MakeTempDir());
  const std::string path = options.directory + "/.chief_secret";
  const std::string secret = (*WorkdirClaim::Take(options))->secret();
  EXPECT_EQ(secret.size(), 64u);
  EXPECT_EQ((*WorkdirClaim::Take(options))->secret(), secret);
  struct stat info = {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  for (const auto& entry :
       std::filesystem::directory_iterator(options.directory)) {
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << entry.path();
  }
  EXPECT_NE((*WorkdirClaim::Take(OptionsFor(MakeTempDir())))->secret(), secret);
  // A damaged secret is drawn again.
  ASSERT_TRUE(Files::Real()->WriteAtomically(path, "short").ok());
  EXPECT_EQ((*WorkdirClaim::Take(options))->secret().size(), 64u);
}

TEST(WorkdirClaimTest, GoesOnWhereThereAreNoLocks) {
  WorkdirClaim::Options options = OptionsFor(MakeTempDir());
  FaultyFiles files(Files::Real());
  options.store = &files;
  files.FailCall(1, absl::UnimplementedError("no locks"));
  const auto claim = WorkdirClaim::Take(options);
  ASSERT_TRUE(claim.ok()) << claim.status();
  EXPECT_FALSE((*claim)->exclusive());
}

TEST(WorkdirClaimTest, DrawsNoSecretAgainBesideAnotherChief) {
  WorkdirClaim::Options options = OptionsFor(MakeTempDir());
  FaultyFiles files(Files::Real());
  options.store = &files;
  const std::string path = options.directory + "/.chief_secret";
  ASSERT_TRUE(files.WriteAtomically(path, "short").ok());
  files.FailCall(1, absl::UnimplementedError("no locks"));
  const auto claim = WorkdirClaim::Take(options);
  EXPECT_EQ(claim.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(claim.status().message()), HasSubstr(path));
  EXPECT_EQ(*files.ReadAll(path), "short");
}

TEST(WorkdirClaimTest, AnUnusableDirectoryIsNamed) {
  const auto claim = WorkdirClaim::Take(OptionsFor("/proc/no/such"));
  EXPECT_EQ(claim.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(claim.status().message()),
              HasSubstr("/proc/no/such/.chief"));
}

TEST(WorkdirClaimTest, KnowsWhetherAnotherChiefHadTheDirectory) {
  WorkdirClaim::Options options;
  options.directory = MakeTempDir();
  EXPECT_TRUE((*WorkdirClaim::Take(options))->first());
  EXPECT_FALSE((*WorkdirClaim::Take(options))->first());
}

}  // namespace
}  // namespace weir
