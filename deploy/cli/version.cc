// weir version, and weir --version: print the version that the tree builds.
#include <memory>

#include "absl/strings/str_format.h"
#include "common/base/exit_code.h"
#include "common/base/version_text.h"
#include "deploy/cli/command.h"

namespace weir {
namespace {

struct Options {};

absl::StatusOr<int> Print(const Options&) {
  absl::PrintF("%s\n", kVersionText);
  return kExitOk;
}

}  // namespace

void AddVersionCommand(CLI::App* app, Command* command) {
  SetVersionFlag(app, "--version", kVersionText, "print the version");
  AddSubcommand(app, "version", "print the version",
                std::make_shared<Options>(), Print, command);
}

}  // namespace weir
