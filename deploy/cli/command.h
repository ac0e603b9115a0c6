// Subcommands of the `weir` command line.
//
// Each file pair of this folder adds one subcommand to the CLI11 app; the
// chosen one stores what main is to run. A new subcommand is one file pair, one
// BUILD line and one line in main.cc.
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
// `words`: what stands after --, which is no option of ours.
void AddRunCommand(CLI::App* app, const std::vector<std::string>& words,
                   Command* command);
void AddTablesCommand(CLI::App* app, Command* command);
void AddTrainCommand(CLI::App* app, Command* command);

}  // namespace weir

#endif  // DEPLOY_CLI_COMMAND_H_
