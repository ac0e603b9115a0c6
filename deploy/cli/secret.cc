// weir secret: prints a secret for a job.
#include <memory>

#include "absl/strings/str_format.h"
#include "common/base/exit_code.h"
#include "deploy/cli/command.h"
#include "proto/security/job_secret.h"

namespace weir {
namespace {

struct Options {};

absl::StatusOr<int> Print(const Options&) {
  absl::PrintF("%s\n", JobSecret::Draw().text());
  return kExitOk;
}

}  // namespace

void AddSecretCommand(CLI::App* app, Command* command) {
  AddSubcommand(app, "secret",
                "print a new secret for a job: export WEIR_SECRET=$(weir "
                "secret)",
                std::make_shared<Options>(), Print, command);
}

}  // namespace weir
