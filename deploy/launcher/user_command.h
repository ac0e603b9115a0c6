// What a user typed as a command: words, and the program that they name.
#ifndef DEPLOY_LAUNCHER_USER_COMMAND_H_
#define DEPLOY_LAUNCHER_USER_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

// Splits at blanks as a shell does: '...', "..." and \ quote; nothing else has
// a meaning. Errors: INVALID_ARGUMENT for a quote that is left open.
absl::StatusOr<std::vector<std::string>> SplitWords(const std::string& text);

// The file that `name` runs: itself when it has a slash, else the first in the
// folders of `path` (PATH). Errors: INVALID_ARGUMENT says what is wrong.
absl::StatusOr<std::string> FindProgram(const std::string& name,
                                        const std::string& path);

// What to call a run of `argv`: its Python script or module, else its program,
// without folder and extension.
std::string RunName(const std::vector<std::string>& argv);

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_USER_COMMAND_H_
