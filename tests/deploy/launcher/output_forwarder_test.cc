// Shows what tasks print as whole lines with their names.
#include "deploy/launcher/output_forwarder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "common/io/files.h"
#include "tests/common/temp_dir.h"

namespace weir {
namespace {

using Lines = std::vector<std::string>;

constexpr auto kLong = std::chrono::seconds(60);

// A file in memory that a forwarder writes to.
class Sink {
 public:
  Sink() : fd_(memfd_create("sink", MFD_CLOEXEC)) {}
  ~Sink() { close(fd_); }
  int fd() const { return fd_; }
  std::string Text() const {
    std::string text(static_cast<size_t>(lseek(fd_, 0, SEEK_END)), 0);
    EXPECT_EQ(pread(fd_, text.data(), text.size(), 0),
              static_cast<ssize_t>(text.size()));
    return text;
  }

 private:
  const int fd_;
};

struct Screen {
  Sink out;
  Sink err;
  std::unique_ptr<OutputForwarder> Forwarder(size_t line_bytes_max = 8192) {
    OutputForwarder::Options options;
    options.out_fd = out.fd();
    options.err_fd = err.fd();
    options.line_bytes_max = line_bytes_max;
    options.tail_lines = 3;
    return std::move(OutputForwarder::Create(options)).value();
  }
};

OutputForwarder::Pipes OpenPipes(OutputForwarder* forwarder,
                                 const std::string& task,
                                 const std::string& log = "") {
  return std::move(forwarder->Open(task, log)).value();
}

void Print(int fd, const std::string& text) {
  ASSERT_EQ(write(fd, text.data(), text.size()),
            static_cast<ssize_t>(text.size()));
}

TEST(LineCutterTest, ReturnsLinesOnceTheyAreWhole) {
  LineCutter cutter(100);
  EXPECT_EQ(cutter.Add("a"), Lines());
  EXPECT_EQ(cutter.Add("b\n\ncd"), (Lines{"ab", ""}));
  EXPECT_EQ(cutter.Add("\n"), Lines{"cd"});
  EXPECT_EQ(cutter.Add("e"), Lines());
  EXPECT_EQ(cutter.TakeRest(), "e");
  EXPECT_EQ(cutter.TakeRest(), "");
}

TEST(LineCutterTest, TakesAReturnForALinesEnd) {
  LineCutter cutter(100);
  EXPECT_EQ(cutter.Add("\r 10%\r 20%"), Lines{" 10%"});
  EXPECT_EQ(cutter.Add("\r"), Lines{" 20%"});
  EXPECT_EQ(cutter.Add("\nx\r\n\r\ny\n"), (Lines{"x", "", "y"}));
}

TEST(LineCutterTest, CutsALongLineBetweenCharacters) {
  LineCutter cutter(4);
  EXPECT_EQ(cutter.Add("abcdefghij\n"), (Lines{"abcd", "efgh", "ij"}));
  EXPECT_EQ(cutter.Add("abcd\n"), Lines{"abcd"});
  EXPECT_EQ(cutter.Add("abc\xC3\xA4xy\n"), (Lines{"abc", "\xC3\xA4xy"}));
  // Not UTF-8: cut all the same.
  EXPECT_EQ(cutter.Add("\x80\x80\x80\x80\x80\n"),
            (Lines{"\x80", "\x80\x80\x80\x80"}));
}

TEST(OutputForwarderTest, PutsNamesBeforeLinesAndKeepsTheStreamsApart) {
  Screen screen;
  const auto forwarder = screen.Forwarder();
  {
    const auto first = OpenPipes(forwarder.get(), "worker/0");
    const auto second = OpenPipes(forwarder.get(), "ps/1");
    Print(first.out.get(), "one\ntw");
    Print(second.err.get(), "warn\n");
    Print(first.out.get(), "o\nlast");
  }
  forwarder->Finish(kLong);
  EXPECT_EQ(screen.out.Text(),
            "[worker/0] one\n[worker/0] two\n[worker/0] last\n");
  EXPECT_EQ(screen.err.Text(), "[ps/1] warn\n");
}

TEST(OutputForwarderTest, WhatIsNotShownIsInTheLogAndTheTail) {
  const std::string log = MakeTempDir() + "/log";
  Screen screen;
  OutputForwarder::Options options;
  options.out_fd = screen.out.fd();
  options.err_fd = screen.err.fd();
  options.show = false;
  const auto forwarder = std::move(OutputForwarder::Create(options)).value();
  Print(OpenPipes(forwarder.get(), "worker/0", log).out.get(), "one\n");
  forwarder->Finish(kLong);
  EXPECT_EQ(screen.out.Text(), "");
  EXPECT_EQ(forwarder->Tail("worker/0"), Lines{"one"});
  EXPECT_EQ(*Files::Real()->ReadAll(log), "one\n");
}

TEST(OutputForwarderTest, NeverTearsLinesOfManyTasks) {
  Screen screen;
  const auto forwarder = screen.Forwarder();
  constexpr int kTasks = 4;
  constexpr int kLines = 2000;
  std::vector<std::thread> tasks;
  for (int task = 0; task < kTasks; ++task) {
    auto pipes = std::make_shared<OutputForwarder::Pipes>(
        OpenPipes(forwarder.get(), "worker/" + std::to_string(task)));
    tasks.emplace_back([pipes, task] {
      for (int i = 0; i < kLines; ++i) {  // in two writes each
        const std::string text(50, static_cast<char>('a' + task));
        Print(pipes->out.get(), text);
        Print(pipes->out.get(), text + "\n");
      }
    });
  }
  for (std::thread& task : tasks) {
    task.join();
  }
  tasks.clear();
  forwarder->Finish(kLong);
  std::map<std::string, int> counts;
  std::istringstream stream(screen.out.Text());
  for (std::string line; std::getline(stream, line);) {
    ++counts[line];
  }
  EXPECT_EQ(counts.size(), static_cast<size_t>(kTasks));
  for (int task = 0; task < kTasks; ++task) {
    EXPECT_EQ(counts["[worker/" + std::to_string(task) + "] " +
                     std::string(100, static_cast<char>('a' + task))],
              kLines);
  }
}

TEST(OutputForwarderTest, LosesNothingOfALineWithoutEnd) {
  Screen screen;
  const auto forwarder = screen.Forwarder(1000);
  const std::string text(100'000, 'x');
  {
    const auto pipes = OpenPipes(forwarder.get(), "worker/0");
    Print(pipes.out.get(), text);
  }
  forwarder->Finish(kLong);
  const std::string shown = screen.out.Text();
  EXPECT_EQ(std::count(shown.begin(), shown.end(), 'x'), 100'000);
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 100);
}

TEST(OutputForwarderTest, AppendsTheBytesToTheLog) {
  const std::string dir = MakeTempDir();
  const std::string log = dir + "/worker-0.log";
  ASSERT_TRUE(Files::Real()->WriteAtomically(log, "before\n").ok());
  Screen screen;
  const auto forwarder = screen.Forwarder();
  {
    const auto pipes = OpenPipes(forwarder.get(), "worker/0", log);
    Print(pipes.out.get(), "\r 10%\r\nx");
  }
  forwarder->Finish(kLong);
  EXPECT_EQ(*Files::Real()->ReadAll(log), "before\n\r 10%\r\nx");
}

TEST(OutputForwarderTest, ALogIsForItsUserAlone) {
  Screen screen;
  const auto forwarder = screen.Forwarder();
  const std::string log = MakeTempDir() + "/log";
  OpenPipes(forwarder.get(), "worker/0", log);
  struct stat info = {};
  ASSERT_EQ(stat(log.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(OutputForwarderTest, AnUnwritableLogIsAnError) {
  Screen screen;
  const auto forwarder = screen.Forwarder();
  EXPECT_FALSE(forwarder->Open("worker/0", "/no/such/folder/log").ok());
}

TEST(OutputForwarderTest, KeepsTheLastLinesOfTheNewestStart) {
  Screen screen;
  const auto forwarder = screen.Forwarder();
  { Print(OpenPipes(forwarder.get(), "worker/0").out.get(), "old\n"); }
  {
    const auto pipes = OpenPipes(forwarder.get(), "worker/0");
    Print(pipes.out.get(), "1\n2\n3\n4\n5");
  }
  forwarder->Finish(kLong);
  EXPECT_EQ(forwarder->Tail("worker/0"), (Lines{"3", "4", "5"}));
  EXPECT_EQ(forwarder->Tail("worker/1"), Lines());
}

TEST(OutputForwarderTest, MuchOutputHidesNoError) {
  Screen screen;
  const auto forwarder = screen.Forwarder();
  {
    const auto pipes = OpenPipes(forwarder.get(), "worker/0");
    Print(pipes.err.get(), "why\n");
    Print(pipes.out.get(), "1\n2\n3\n4\n5\n");
  }
  forwarder->Finish(kLong);
  // Whichever pipe was read first.
  Lines tail = forwarder->Tail("worker/0");
  std::sort(tail.begin(), tail.end());
  EXPECT_EQ(tail, (Lines{"4", "5", "why"}));
}

TEST(OutputForwarderTest, ANoteComesAfterWhatWasPrintedBefore) {
  Screen screen;
  const auto forwarder = screen.Forwarder();
  {
    const auto pipes = OpenPipes(forwarder.get(), "worker/0");
    Print(pipes.err.get(), "first\n");
    forwarder->Note("weir run: second");
  }
  forwarder->Finish(kLong);
  EXPECT_EQ(screen.err.Text(), "[worker/0] first\nweir run: second\n");
}

TEST(OutputForwarderTest, DoesNotWaitForAPipeThatStaysOpen) {
  Screen screen;
  const auto forwarder = screen.Forwarder();
  const auto pipes = OpenPipes(forwarder.get(), "worker/0");
  Print(pipes.out.get(), "half");
  forwarder->Finish(std::chrono::milliseconds(10));
  EXPECT_EQ(screen.out.Text(), "[worker/0] half\n");
}

TEST(OutputForwarderTest, AClosedOutputLeavesTheOtherAlone) {
  Screen screen;
  int closed[2];
  ASSERT_EQ(pipe(closed), 0);
  close(closed[0]);
  OutputForwarder::Options options;
  options.out_fd = closed[1];
  options.err_fd = screen.err.fd();
  const auto forwarder = std::move(OutputForwarder::Create(options)).value();
  {
    const auto pipes = OpenPipes(forwarder.get(), "worker/0");
    Print(pipes.out.get(), "gone\n");
    Print(pipes.err.get(), "here\n");
  }
  forwarder->Finish(kLong);
  EXPECT_EQ(screen.err.Text(), "[worker/0] here\n");
  close(closed[1]);
}

}  // namespace
}  // namespace weir
