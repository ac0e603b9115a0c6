// weir_cli: what `./weir` runs for train, run, task, probe, render, config,
// checkpoint, tables, top, trace, evaluate, predict, page, logs, secret, certs,
// gpu-check and version.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "common/base/exit_code.h"
#include "common/base/limits.h"
#include "common/base/logging.h"
#include "common/base/printable.h"
#include "deploy/cli/command.h"
#include "proto/security/security.h"
#include "proto/task/grpc_log.h"

namespace {

// Returns the first word that is not a command where a command is due, or "",
// and in `parent` the words before it. CLI11 would only say that a subcommand
// is required, without the word.
std::string UnknownCommand(CLI::App* app, const std::vector<std::string>& words,
                           std::string* parent) {
  *parent = app->get_name();
  for (const std::string& word : words) {
    if (app->get_require_subcommand_min() == 0 || word.rfind('-', 0) == 0) {
      break;
    }
    const auto commands = app->get_subcommands(
        [&](CLI::App* command) { return command->get_name() == word; });
    if (commands.empty()) {
      return word;
    }
    app = commands.front();
    *parent += " " + word;
  }
  return "";
}

// Whether a user's command may stand behind "--" of this one.
bool TakesCommand(const char* command) {
  return std::strcmp(command, "render") == 0 ||
         std::strcmp(command, "run") == 0 || std::strcmp(command, "task") == 0;
}

}  // namespace

int main(int argc, char** argv) {
  // Commands print results, so the libraries log only what is wrong.
  const absl::Status logging =
      weir::InitLogging("weir", weir::LogOptions::FromEnvironment("warn"));
  weir::PreferCheapCiphers();
  weir::LogGrpcAsDebug();
  CLI::App app("Weir: parameter-server training.", "weir");
  app.require_subcommand(1);
  weir::Command command;
  weir::AddCertsCommand(&app, &command);
  weir::AddCheckpointCommand(&app, &command);
  weir::AddConfigCommand(&app, &command);
  weir::AddEvaluateCommand(&app, &command);
  weir::AddGpuCheckCommand(&app, &command);
  weir::AddLogsCommand(&app, &command);
  weir::AddPageCommand(&app, &command);
  weir::AddPredictCommand(&app, &command);
  // CLI11 gets only the words before --. It would give brackets in the user's
  // own words a meaning.
  int words_at = argc;
  if (argc > 1 && TakesCommand(argv[1])) {
    words_at = static_cast<int>(
        std::find(argv, argv + argc, std::string("--")) - argv);
  }
  const int words_begin = std::min(words_at + 1, argc);
  const std::vector<std::string> words(argv + words_begin, argv + argc);
  weir::AddProbeCommand(&app, &command);
  weir::AddRenderCommand(&app, words, &command);
  weir::AddRunCommand(&app, words, &command);
  weir::AddSecretCommand(&app, &command);
  weir::AddTablesCommand(&app, &command);
  weir::AddTaskCommand(&app, words, &command);
  weir::AddTopCommand(&app, &command);
  weir::AddTraceCommand(&app, &command);
  weir::AddTrainCommand(&app, &command);
  weir::AddVersionCommand(&app, &command);
  std::string parent;
  const std::string unknown = UnknownCommand(
      &app, {argv + std::min(argc, 1), argv + words_at}, &parent);
  if (!unknown.empty()) {
    std::fprintf(stderr, "weir: unknown command '%s'; try %s --help\n",
                 unknown.c_str(), parent.c_str());
    return weir::kExitUsage;
  }
  try {
    app.parse(words_at, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? weir::kExitOk : weir::kExitUsage;
  }
  const absl::StatusOr<int> code = logging.ok() ? command() : logging;
  if (!code.ok()) {
    // An error may name what a file or another host said.
    const std::string why =
        weir::Printable(code.status().message(), weir::kPeerMessageBytesMax);
    std::fprintf(stderr, "weir: %s\n", why.c_str());
    return weir::ExitCodeFor(code.status());
  }
  return *code;
}
