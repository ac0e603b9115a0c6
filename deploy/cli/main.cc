// weir_cli: what `./weir` runs for train, run, config, checkpoint, evaluate,
// predict and gpu-check.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "common/exit_code.h"
#include "common/logging.h"
#include "deploy/cli/command.h"

int main(int argc, char** argv) {
  // Commands print results; of what the libraries log, only what is wrong.
  weir::InitLogging("weir");
  if (std::getenv("WEIR_LOG_LEVEL") == nullptr) {  // NOLINT: no thread yet
    spdlog::set_level(spdlog::level::warn);
  }
  CLI::App app("Weir: parameter-server training.", "weir");
  app.require_subcommand(1);
  weir::Command command;
  weir::AddCheckpointCommand(&app, &command);
  weir::AddConfigCommand(&app, &command);
  weir::AddEvaluateCommand(&app, &command);
  weir::AddGpuCheckCommand(&app, &command);
  weir::AddPredictCommand(&app, &command);
  // CLI11 would give brackets in a user's words a meaning.
  int words_at = argc;
  if (argc > 1 && std::strcmp(argv[1], "run") == 0) {
    words_at = static_cast<int>(
        std::find(argv, argv + argc, std::string("--")) - argv);
  }
  const int words_begin = std::min(words_at + 1, argc);
  weir::AddRunCommand(&app, {argv + words_begin, argv + argc}, &command);
  weir::AddTrainCommand(&app, &command);
  try {
    app.parse(words_at, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? weir::kExitOk : weir::kExitUsage;
  }
  const absl::StatusOr<int> code = command();
  if (!code.ok()) {
    std::fprintf(stderr, "weir: %s\n",
                 std::string(code.status().message()).c_str());
    return weir::ExitCodeFor(code.status());
  }
  return *code;
}
