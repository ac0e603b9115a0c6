// Subcommands of the `weir` command line.
//
// Each of these functions adds one subcommand to the CLI11 app. When the user
// chose that subcommand, parsing stores in `command` what main is to run. A new
// subcommand is one .cc file, one target of BUILD, one line here and one line
// in main.cc.
#ifndef DEPLOY_CLI_COMMAND_H_
#define DEPLOY_CLI_COMMAND_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/flags/flags.h"

namespace weir {

// Runs the chosen subcommand. Returns the exit code; an error is printed as one
// line and becomes ExitCodeFor(error).
using Command = std::function<absl::StatusOr<int>()>;

// Adds the subcommand `name` to `app`. When the user chose it, `command` is to
// call `run` with `options`, which the subcommand's flags have filled.
template <typename Options>
CLI::App* AddSubcommand(CLI::App* app, const std::string& name,
                        const std::string& about,
                        std::shared_ptr<Options> options,
                        absl::StatusOr<int> (*run)(const Options&),
                        Command* command) {
  return AddSubcommand(app, name, about, [options, run, command] {
    *command = [options, run] { return run(*options); };
  });
}

void AddCertsCommand(CLI::App* app, Command* command);
void AddCheckpointCommand(CLI::App* app, Command* command);
void AddConfigCommand(CLI::App* app, Command* command);
void AddEvaluateCommand(CLI::App* app, Command* command);
void AddGpuCheckCommand(CLI::App* app, Command* command);
void AddLogsCommand(CLI::App* app, Command* command);
void AddPageCommand(CLI::App* app, Command* command);
void AddPredictCommand(CLI::App* app, Command* command);
void AddProbeCommand(CLI::App* app, Command* command);
// `words` stand after -- in the command line, here and below: they are the
// user's command, and none of them is an option of ours.
void AddRenderCommand(CLI::App* app, const std::vector<std::string>& words,
                      Command* command);
void AddRunCommand(CLI::App* app, const std::vector<std::string>& words,
                   Command* command);
void AddSecretCommand(CLI::App* app, Command* command);
void AddTablesCommand(CLI::App* app, Command* command);
// `words` as in AddRunCommand.
void AddTaskCommand(CLI::App* app, const std::vector<std::string>& words,
                    Command* command);
void AddTopCommand(CLI::App* app, Command* command);
void AddTraceCommand(CLI::App* app, Command* command);
void AddTrainCommand(CLI::App* app, Command* command);
// Adds the flag --version, too.
void AddVersionCommand(CLI::App* app, Command* command);

}  // namespace weir

#endif  // DEPLOY_CLI_COMMAND_H_
