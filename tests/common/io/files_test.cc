#include "common/io/files.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"
#include "tests/support/faulty_files.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

TEST(FilesTest, ReadsBackWhatWasWritten) {
  Files* const files = Files::Real();
  const std::string path = MakeTempDir() + "/a";
  auto writer = files->Create(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Append("hello ", 6).ok());
  ASSERT_TRUE((*writer)->Append("world", 5).ok());
  ASSERT_TRUE((*writer)->Sync().ok());
  ASSERT_TRUE((*writer)->Close().ok());
  EXPECT_EQ(*files->ReadAll(path), "hello world");
  EXPECT_EQ(files->Stat(path)->bytes, 11);

  auto reader = files->Open(path);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->size(), 11);
  std::string part(3, 0);
  ASSERT_TRUE((*reader)->ReadAt(4, part.data(), 3).ok());
  EXPECT_EQ(part, "o w");
}

TEST(FilesTest, CreateEmptiesAndOpenAppendKeeps) {
  Files* const files = Files::Real();
  const std::string path = MakeTempDir() + "/a";
  ASSERT_TRUE(files->WriteAtomically(path, "old").ok());
  ASSERT_TRUE((*files->OpenAppend(path))->Append("er", 2).ok());
  EXPECT_EQ(*files->ReadAll(path), "older");
  ASSERT_TRUE((*files->Create(path))->Append("n", 1).ok());
  EXPECT_EQ(*files->ReadAll(path), "n");
}

TEST(FilesTest, ReadPastTheEndIsDataLossAndNamesThePlace) {
  Files* const files = Files::Real();
  const std::string path = MakeTempDir() + "/a";
  ASSERT_TRUE(files->WriteAtomically(path, "0123456789").ok());
  char buffer[16];
  const absl::Status status = (*files->Open(path))->ReadAt(8, buffer, 4);
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(Message(status), HasSubstr(path + ": ends at byte 10"));
}

TEST(FilesTest, MissingFilesAreNotFoundAndNamed) {
  Files* const files = Files::Real();
  const std::string path = MakeTempDir() + "/absent";
  for (const absl::Status& status :
       {files->Open(path).status(), files->Stat(path).status(),
        files->List(path).status(), files->Remove(path),
        files->Rename(path, path + "2"), files->SyncDirectory(path),
        files->Create(path + "/below").status()}) {
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_THAT(Message(status), HasSubstr(path));
    EXPECT_THAT(Message(status), HasSubstr("No such file or directory"));
  }
  EXPECT_FALSE(*files->Exists(path));
}

TEST(FilesTest, UnusablePathsAreInvalid) {
  Files* const files = Files::Real();
  const std::string dir = MakeTempDir();
  EXPECT_TRUE(absl::IsInvalidArgument(files->Open(dir).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(files->Create(dir).status()));
  ASSERT_TRUE(files->WriteAtomically(dir + "/f", "").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(files->Open(dir + "/f/x").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(files->MakeDirectories(dir + "/f")));
  EXPECT_TRUE(absl::IsInvalidArgument(files->Remove(dir)));
}

TEST(FilesTest, FullDiskIsResourceExhausted) {
  auto writer = Files::Real()->OpenAppend("/dev/full");
  if (!writer.ok()) {
    GTEST_SKIP() << "no /dev/full: " << writer.status();
  }
  const absl::Status status = (*writer)->Append("x", 1);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(Message(status),
              HasSubstr("cannot write /dev/full: No space left on device"));
}

// Another try may do: nobody is to take such a file for missing or damaged.
TEST(FilesTest, AFailingDeviceIsUnavailable) {
  for (const int error : {EIO, ESTALE, ETIMEDOUT, ENOTCONN, EHOSTDOWN}) {
    EXPECT_EQ(FileError(error, "read", "/share/a").code(),
              absl::StatusCode::kUnavailable)
        << error;
  }
  EXPECT_EQ(FileError(EBADF, "read", "/share/a").code(),
            absl::StatusCode::kInternal);
}

TEST(FilesTest, MakesAndListsDirectories) {
  Files* const files = Files::Real();
  const std::string dir = MakeTempDir();
  ASSERT_TRUE(files->MakeDirectories(dir + "/x/y//z/").ok());
  ASSERT_TRUE(files->MakeDirectories(dir + "/x/y/z").ok());
  EXPECT_TRUE(files->Stat(dir + "/x/y/z")->is_directory);
  ASSERT_TRUE(files->WriteAtomically(dir + "/x/b", "").ok());
  ASSERT_TRUE(files->WriteAtomically(dir + "/x/a", "").ok());
  EXPECT_THAT(*files->List(dir + "/x"), ElementsAre("a", "b", "y"));
  EXPECT_TRUE(absl::IsAlreadyExists(files->MakeDirectory(dir + "/x")));
  EXPECT_TRUE(absl::IsNotFound(files->MakeDirectory(dir + "/none/x")));
  ASSERT_TRUE(files->MakeDirectory(dir + "/z").ok());
  EXPECT_TRUE(files->Stat(dir + "/z")->is_directory);
  ASSERT_TRUE(files->Remove(dir + "/x/y/z").ok());
  EXPECT_FALSE(*files->Exists(dir + "/x/y/z"));
}

TEST(FilesTest, AtomicWriteDoesItsStepsInTheDurableOrder) {
  FaultyFiles files(Files::Real());
  const std::string dir = MakeTempDir();
  std::vector<std::string> steps;
  files.Watch([&](const std::string& call) {
    steps.push_back(call.substr(0, call.find(" /")));
  });
  ASSERT_TRUE(files.WriteAtomically(dir + "/m", "new").ok());
  EXPECT_THAT(steps, ElementsAre("create", "append", "sync", "close", "rename",
                                 "fsync directory"));
}

// I1: whichever call fails, either the old contents or the new are there as a
// whole, and nothing else is left behind.
TEST(FilesTest, AtomicWriteIsWholeOrAbsentWhicheverCallFails) {
  FaultyFiles files(Files::Real());
  const std::string dir = MakeTempDir();
  const std::string path = dir + "/m";
  int failures = 0;
  for (int k = 1;; ++k) {
    ASSERT_TRUE(Files::Real()->WriteAtomically(path, "old").ok());
    files.FailCall(k, absl::ResourceExhaustedError("No space left on device"));
    const absl::Status status = files.WriteAtomically(path, "new, longer");
    if (status.ok()) {
      break;
    }
    ++failures;
    EXPECT_TRUE(absl::IsResourceExhausted(status));
    EXPECT_THAT(Message(status), HasSubstr(dir));
    const bool renamed = k == 6;
    EXPECT_EQ(*Files::Real()->ReadAll(path), renamed ? "new, longer" : "old")
        << k;
    EXPECT_THAT(*Files::Real()->List(dir), ElementsAre("m")) << k;
  }
  EXPECT_EQ(failures, 6);
  EXPECT_EQ(*Files::Real()->ReadAll(path), "new, longer");
}

TEST(FilesTest, PathHelpers) {
  EXPECT_EQ(DirectoryOf("a/b/c"), "a/b");
  EXPECT_EQ(DirectoryOf("c"), ".");
  EXPECT_EQ(DirectoryOf("/c"), "/");
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("a", "/b"), "/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_TRUE(IsTemporaryPath(TemporaryPath("x/manifest.json")));
  EXPECT_NE(TemporaryPath("x"), TemporaryPath("x"));
  // The name must not depend on the process: the first process of every
  // container has the same id.
  EXPECT_FALSE(absl::StrContains(TemporaryPath("x"),
                                 absl::StrCat(".tmp.", getpid(), ".")));
  EXPECT_FALSE(IsTemporaryPath("x/manifest.json"));
}

// To open a pipe without a writer would wait for ever, and a device may have no
// end.
TEST(FilesTest, OnlyRegularFilesAreOpened) {
  const std::string pipe = MakeTempDir() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero")}) {
    const absl::Status status = Files::Real()->Open(path).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(status.message().find(path + ": it is not a regular file"),
              std::string::npos)
        << status;
  }
}

TEST(FilesTest, AFileLongerThanAnyMemoryIsAnError) {
#ifdef __has_feature
#if __has_feature(address_sanitizer)
  GTEST_SKIP() << "the sanitizer needs more address space than is left here";
#endif
#endif
  const std::string path = MakeTempDir() + "/long";
  ASSERT_TRUE(Files::Real()->WriteAtomically(path, "").ok());
  // It takes no room on the disk.
  const int64_t bytes = int64_t{1} << 43;
  if (::truncate(path.c_str(), bytes) != 0) {
    GTEST_SKIP() << "no file of " << bytes << " bytes here";
  }
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  const rlimit low = {rlim_t{1} << 42, before.rlim_max};
  if (::setrlimit(RLIMIT_AS, &low) != 0) {
    GTEST_SKIP() << "the address space cannot be bounded";
  }
  const absl::Status status = Files::Real()->ReadAll(path).status();
  ::setrlimit(RLIMIT_AS, &before);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(status.message().find(path), std::string::npos) << status;
}

mode_t ModeOf(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

// Weights and logs are for their user alone, whatever the umask would allow.
TEST(FilesTest, WhatIsMadeIsForItsUserAlone) {
  const mode_t umask_before = ::umask(0);
  Files* const files = Files::Real();
  const std::string dir = MakeTempDir() + "/a";
  ASSERT_TRUE(files->MakeDirectories(dir + "/b").ok());
  ASSERT_TRUE(files->MakeDirectory(dir + "/c").ok());
  ASSERT_TRUE(files->WriteAtomically(dir + "/atomic", "x").ok());
  ASSERT_TRUE(files->Create(dir + "/created").ok());
  ASSERT_TRUE(files->CreateNew(dir + "/new").ok());
  ASSERT_TRUE(files->OpenAppend(dir + "/appended").ok());
  ::umask(umask_before);
  for (const char* const name : {"", "/b", "/c"}) {
    EXPECT_EQ(ModeOf(dir + name), mode_t{0700}) << name;
  }
  for (const char* const name : {"/atomic", "/created", "/new", "/appended"}) {
    EXPECT_EQ(ModeOf(dir + name), mode_t{0600}) << name;
  }
}

TEST(FilesTest, ANewFileIsNotWrittenThroughALink) {
  Files* const files = Files::Real();
  const std::string dir = MakeTempDir();
  ASSERT_TRUE(files->WriteAtomically(dir + "/other", "keep").ok());
  ASSERT_EQ(::symlink((dir + "/other").c_str(), (dir + "/link").c_str()), 0);
  ASSERT_EQ(::symlink((dir + "/none").c_str(), (dir + "/loose").c_str()), 0);
  for (const char* const name : {"/other", "/link", "/loose"}) {
    EXPECT_TRUE(absl::IsAlreadyExists(files->CreateNew(dir + name).status()))
        << name;
  }
  EXPECT_EQ(*files->ReadAll(dir + "/other"), "keep");
  EXPECT_FALSE(*files->Exists(dir + "/none"));
}

}  // namespace
}  // namespace weir
