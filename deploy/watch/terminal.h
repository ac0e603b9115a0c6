// How large a terminal is, and texts that fit into it.
//
// Threads: safe; functions without state.
#ifndef DEPLOY_WATCH_TERMINAL_H_
#define DEPLOY_WATCH_TERMINAL_H_

#include <limits>
#include <string>

#include "absl/strings/string_view.h"

namespace weir {

struct TerminalSize {
  int lines = std::numeric_limits<int>::max();
  int columns = std::numeric_limits<int>::max();
};

// Returns the size of the terminal at `fd`. What is no terminal, or does not
// say its size, has room for everything.
TerminalSize SizeOfTerminal(int fd);

// Returns how many columns `text`, a line of UTF-8, takes: one for each of its
// characters, though a terminal shows some of them wider.
int ColumnsOf(absl::string_view text);

// Returns the first `columns` characters of `text`.
std::string CutToColumns(absl::string_view text, int columns);

}  // namespace weir

#endif  // DEPLOY_WATCH_TERMINAL_H_
