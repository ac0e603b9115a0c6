// The end of every benchmark's main: reads the flags and gives the exit code.
#ifndef BENCH_SUPPORT_BENCH_MAIN_H_
#define BENCH_SUPPORT_BENCH_MAIN_H_

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "common/base/exit_code.h"

namespace weir {

// The tasks that a bench starts are insecure, unless the environment chooses.
inline void DefaultToInsecure() {
  for (const char* name : {"WEIR_SECRET", "WEIR_SECRET_FILE", "WEIR_TLS_DIR"}) {
    const char* const value = std::getenv(name);  // NOLINT: no thread yet
    if (value != nullptr && *value != '\0') {
      return;
    }
  }
  setenv("WEIR_INSECURE", "1", /*overwrite=*/1);  // NOLINT: no thread yet
}

// Parses the command line into the variables that `app` was given, then calls
// `run`, which returns a status. Returns the process's exit code.
template <typename Run>
int BenchMain(CLI::App* app, int argc, char** argv, const Run& run) {
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app->exit(error) == 0 ? kExitOk : kExitUsage;
  }
  DefaultToInsecure();
  const absl::Status status = run();
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %s\n",
                 std::filesystem::path(argv[0]).filename().c_str(),
                 std::string(status.message()).c_str());
  }
  return ExitCodeFor(status);
}

}  // namespace weir

#endif  // BENCH_SUPPORT_BENCH_MAIN_H_
