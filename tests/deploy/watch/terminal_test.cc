#include "deploy/watch/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "common/io/file_descriptor.h"

namespace weir {
namespace {

TEST(TerminalTest, HasTheSizeThatItSays) {
  const FileDescriptor terminal(posix_openpt(O_RDWR | O_NOCTTY));
  ASSERT_TRUE(terminal.valid());
  winsize size = {};
  size.ws_row = 24;
  size.ws_col = 80;
  ASSERT_EQ(ioctl(terminal.get(), TIOCSWINSZ, &size), 0);
  EXPECT_EQ(SizeOfTerminal(terminal.get()).lines, 24);
  EXPECT_EQ(SizeOfTerminal(terminal.get()).columns, 80);
}

TEST(TerminalTest, WhatIsNoTerminalHasRoomForEverything) {
  EXPECT_GT(SizeOfTerminal(-1).lines, 1'000'000);
  EXPECT_GT(SizeOfTerminal(-1).columns, 1'000'000);
}

TEST(TerminalTest, CutsBetweenCharacters) {
  EXPECT_EQ(ColumnsOf("a▁ü"), 3);
  EXPECT_EQ(CutToColumns("a▁ü", 3), "a▁ü");
  EXPECT_EQ(CutToColumns("a▁ü", 2), "a▁");
  EXPECT_EQ(CutToColumns("a▁ü", 1), "a");
  EXPECT_EQ(CutToColumns("a▁ü", 0), "");
}

}  // namespace
}  // namespace weir
