// Subcommands of the `weir` command line.
//
// Each of these functions adds one subcommand to the CLI11 app. When the user
// chose that subcommand, parsing stores in `command` what main is to run. A new
// subcommand is one .cc file, one target of BUILD, one line here and one line
// in main.cc.
#ifndef DEPLOY_CLI_COMMAND_H_
#define DEPLOY_CLI_COMMAND_H_

#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"

namespace weir {

// Runs the chosen subcommand. Returns the exit code; an error is printed as one
// line and becomes ExitCodeFor(error).
using Command = std::function<absl::StatusOr<int>()>;

void AddCheckpointCommand(CLI::App* app, Command* command);
void AddConfigCommand(CLI::App* app, Command* command);
void AddEvaluateCommand(CLI::App* app, Command* command);
void AddGpuCheckCommand(CLI::App* app, Command* command);
void AddPredictCommand(CLI::App* app, Command* command);
// `words` stand after -- in the command line: they are the user's command, and
// none of them is an option of ours.
void AddRunCommand(CLI::App* app, const std::vector<std::string>& words,
                   Command* command);
void AddTablesCommand(CLI::App* app, Command* command);
void AddTrainCommand(CLI::App* app, Command* command);

}  // namespace weir

#endif  // DEPLOY_CLI_COMMAND_H_
