#include "deploy/logs/log_files.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void Append(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

// The lines that are there by now.
std::vector<std::string> Lines(LogFile* file, bool last = false) {
  std::vector<std::string> lines;
  while (true) {
    const auto line = file->Next(last);
    EXPECT_TRUE(line.ok()) << line.status();
    if (!line.ok() || !line->has_value()) {
      return lines;
    }
    lines.push_back(**line);
  }
}

TEST(LogFilesTest, AFileIsNamedByItsTask) {
  EXPECT_EQ(TaskOfLog("worker-12.log")->ToString(), "worker/12");
  EXPECT_EQ(TaskOfLog("ps-0.log")->ToString(), "ps/0");
  for (const char* const name :
       {"", "worker.log", "worker-.log", "worker--1.log", "worker-01.log",
        "worker-0.log.gz", "audit-ps-0.jsonl", "other-0.log", "worker-0",
        "worker-99999999999.log", "-0.log", "master-0.log"}) {
    EXPECT_FALSE(TaskOfLog(name).has_value()) << name;
  }
}

TEST(LogFilesTest, FindsTheLogsOfARunOrOfAFolder) {
  const std::string run = MakeTempDir();
  std::filesystem::create_directory(run + "/logs");
  const auto none = FindLogFolder(Files::Real(), run);
  EXPECT_TRUE(absl::IsInvalidArgument(none.status()));
  EXPECT_THAT(none.status().message(), HasSubstr(run + " holds no logs"));
  for (const char* const name : {"worker-10.log", "worker-2.log", "chief-0.log",
                                 "evaluator-0.log", "ps-0.log", "x.log"}) {
    Append(run + "/logs/" + name, "");
  }
  EXPECT_EQ(*FindLogFolder(Files::Real(), run), run + "/logs");
  EXPECT_EQ(*FindLogFolder(Files::Real(), run + "/logs"), run + "/logs");
  std::vector<std::string> names;
  const auto tasks = ListLogs(Files::Real(), run + "/logs");
  for (const TaskId& task : *tasks) {
    names.push_back(task.ToString());
  }
  EXPECT_THAT(names, ElementsAre("ps/0", "chief/0", "worker/2", "worker/10",
                                 "evaluator/0"));
}

TEST(LogFilesTest, WhatIsNoRunIsNamed) {
  const std::string dir = MakeTempDir();
  EXPECT_EQ(
      FindLogFolder(Files::Real(), dir + "/none").status(),
      absl::InvalidArgumentError("there is no directory " + dir + "/none"));
  Append(dir + "/file", "");
  EXPECT_EQ(FindLogFolder(Files::Real(), dir + "/file").status(),
            absl::InvalidArgumentError(
                dir + "/file is no directory; give that of a run"));
  Append(dir + "/logs", "no folder");
  EXPECT_FALSE(FindLogFolder(Files::Real(), dir).ok());
}

TEST(LogFilesTest, AFileIsReadWhileItGrows) {
  const std::string path = MakeTempDir() + "/ps-0.log";
  Append(path, "a\nb\n\nc");
  LogFile file(Files::Real(), path);
  EXPECT_THAT(Lines(&file), ElementsAre("a", "b", ""));
  Append(path, "c");
  EXPECT_THAT(Lines(&file), ElementsAre());
  Append(path, "c\nd");
  EXPECT_THAT(Lines(&file), ElementsAre("ccc"));
  EXPECT_THAT(Lines(&file, /*last=*/true), ElementsAre("d"));
  EXPECT_THAT(Lines(&file, /*last=*/true), ElementsAre());
}

TEST(LogFilesTest, AFileThatWasEmptiedIsReadAgain) {
  const std::string path = MakeTempDir() + "/ps-0.log";
  Append(path, "first\n");
  LogFile file(Files::Real(), path);
  EXPECT_THAT(Lines(&file), ElementsAre("first"));
  std::filesystem::resize_file(path, 0);
  EXPECT_THAT(Lines(&file), ElementsAre());
  Append(path, "b\n");
  EXPECT_THAT(Lines(&file), ElementsAre("b"));
}

TEST(LogFilesTest, ALongLineComesInPieces) {
  const std::string path = MakeTempDir() + "/ps-0.log";
  const size_t bytes = 10 << 20;
  Append(path, std::string(bytes, 'a') + "\nb\n");
  LogFile file(Files::Real(), path);
  const auto lines = Lines(&file);
  size_t sum = 0;
  for (const std::string& line : lines) {
    EXPECT_LE(line.size(), kLogLineBytesMax);
    sum += line.size();
  }
  EXPECT_EQ(sum, bytes + 1);
  EXPECT_EQ(lines.back(), "b");
}

TEST(LogFilesTest, WhatCannotBeReadIsAnErrorOnce) {
  const std::string dir = MakeTempDir();
  std::filesystem::create_directory(dir + "/ps-0.log");
  ASSERT_EQ(::mkfifo((dir + "/ps-1.log").c_str(), 0600), 0);
  for (const char* const name : {"/ps-0.log", "/ps-1.log", "/ps-2.log"}) {
    LogFile file(Files::Real(), dir + name);
    const auto line = file.Next(true);
    ASSERT_FALSE(line.ok());
    EXPECT_THAT(line.status().message(), HasSubstr(dir + name));
    EXPECT_THAT(Lines(&file, true), ElementsAre());
  }
}

}  // namespace
}  // namespace weir
