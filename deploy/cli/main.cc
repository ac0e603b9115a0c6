// weir_cli: what `./weir train|config|checkpoint|evaluate|predict|gpu-check`
// runs.
#include <cstdio>
#include <cstdlib>

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
  weir::AddTrainCommand(&app, &command);
  try {
    app.parse(argc, argv);
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
