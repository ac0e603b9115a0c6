#include "deploy/watch/terminal.h"

#include <sys/ioctl.h>

#include <cstddef>

namespace weir {
namespace {

// Whether a character of UTF-8 begins with `byte`.
bool IsStart(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
}

}  // namespace

TerminalSize SizeOfTerminal(int fd) {
  TerminalSize size;
  winsize told = {};
  if (ioctl(fd, TIOCGWINSZ, &told) == 0) {
    if (told.ws_row > 0) {
      size.lines = told.ws_row;
    }
    if (told.ws_col > 0) {
      size.columns = told.ws_col;
    }
  }
  return size;
}

int ColumnsOf(absl::string_view text) {
  int columns = 0;
  for (const char byte : text) {
    columns += IsStart(byte) ? 1 : 0;
  }
  return columns;
}

std::string CutToColumns(absl::string_view text, int columns) {
  int count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsStart(text[i]) && ++count > columns) {
      return std::string(text.substr(0, i));
    }
  }
  return std::string(text);
}

}  // namespace weir
