#include "tests/deploy/cli/command_line.h"

#include "CLI/CLI.hpp"

namespace weir {

Command ReadCommandLine(const std::function<void(CLI::App*, Command*)>& add,
                        const std::vector<std::string>& words) {
  CLI::App app;
  app.require_subcommand(1);
  Command command;
  add(&app, &command);
  try {
    // The last word first, as CLI11 wants them.
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) != 0) {
      throw WrongUsage(error.what());
    }
  }
  return command;
}

}  // namespace weir
