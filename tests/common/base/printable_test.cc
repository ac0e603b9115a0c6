#include "common/base/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace weir {
namespace {

using namespace std::string_literals;

TEST(PrintableTest, OrdinaryTextStaysAsItIs) {
  for (const char* const text :
       {"", "worker 0 (host): 'w' is 3", "C:\\path \"quoted\" \\n",
        "J\xc3\xb6rg", "\xe6\xa8\xa1\xe5\x9e\x8b", "\xf0\x9f\x98\x80"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableTest, WhatMovesACursorOrForgesALineIsEscaped) {
  EXPECT_EQ(Printable("bye\n2026-01-01 chief/0 I forged"),
            "bye\\n2026-01-01 chief/0 I forged");
  EXPECT_EQ(Printable("\r\t\x1b[31m\x7f\0end"s),
            "\\r\\t\\x1b[31m\\x7f\\x00end");
  // One byte that begins a command of a terminal, and the same in UTF-8.
  EXPECT_EQ(Printable("\x9b[31m \xc2\x9b[31m"), "\\x9b[31m \\xc2\\x9b[31m");
  // It would show the rest from right to left.
  EXPECT_EQ(Printable("\xe2\x80\xae"
                      "abc"),
            "\\xe2\\x80\\xae"
            "abc");
  EXPECT_EQ(Printable("a\xe2\x80\xa8"
                      "b"),
            "a\\xe2\\x80\\xa8"
            "b");
}

TEST(PrintableTest, BytesThatAreNoCharactersAreEscaped) {
  EXPECT_EQ(Printable("\xc3"), "\\xc3");
  EXPECT_EQ(Printable("\xe2\x82z"), "\\xe2\\x82z");
  EXPECT_EQ(Printable("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(Printable("\xc0\x8a"), "\\xc0\\x8a") << "a new line, too long";
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(Printable("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
}

TEST(PrintableTest, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(Printable(std::string(kPeerNameBytesMax, 'a')),
            std::string(kPeerNameBytesMax, 'a'));
  EXPECT_EQ(Printable(std::string(kPeerNameBytesMax + 1, 'a')),
            std::string(kPeerNameBytesMax - 3, 'a') + "...");
  EXPECT_EQ(Printable("abcdefg", 6), "abc...");
  EXPECT_EQ(Printable("ab\xc3\xb6xyz", 6), "ab...") << "not half of a letter";
  EXPECT_EQ(Printable("ab\nxyz", 6), "ab...") << "not half of an escape";
  EXPECT_EQ(Printable("\n\n\n", 3), "...");
}

TEST(PrintableTest, WhatIsPrintableOnceStaysSo) {
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    text += static_cast<char>(i * 7 % 256);
  }
  const std::string once = Printable(text);
  EXPECT_LE(once.size(), kPeerNameBytesMax);
  EXPECT_EQ(Printable(once), once);
}

}  // namespace
}  // namespace weir
