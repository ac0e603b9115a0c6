// Reads a command line as weir_cli does, with one subcommand alone.
#ifndef TESTS_DEPLOY_CLI_COMMAND_LINE_H_
#define TESTS_DEPLOY_CLI_COMMAND_LINE_H_

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "deploy/cli/command.h"

namespace weir {

// The words do not fit; what() says why.
struct WrongUsage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What main is to run for `words`, which begin with the subcommand that `add`
// adds. Throws WrongUsage. A flag that only prints and ends, --version, has
// done so, and there is nothing to run.
Command ReadCommandLine(const std::function<void(CLI::App*, Command*)>& add,
                        const std::vector<std::string>& words);

}  // namespace weir

#endif  // TESTS_DEPLOY_CLI_COMMAND_LINE_H_
