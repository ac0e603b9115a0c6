// Reads a command as a user typed it: its words, and the program they name.
#ifndef DEPLOY_LAUNCHER_USER_COMMAND_H_
#define DEPLOY_LAUNCHER_USER_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

// Splits at blanks as a shell does: '...', "..." and \ quote. No other
// character has a meaning, so variables and globs stay as they are written.
// Errors: INVALID_ARGUMENT for a quote that is left open.
absl::StatusOr<std::vector<std::string>> SplitWords(const std::string& text);

// Returns the file that `name` runs: `name` itself if it has a slash, else the
// first program of that name in the folders of `path` (PATH).
// Errors: INVALID_ARGUMENT says what is wrong.
absl::StatusOr<std::string> FindProgram(const std::string& name,
                                        const std::string& path);

// Returns a name for a run of `argv`: its Python script or module, else its
// program, without folder and extension. REQUIRES: `argv` is not empty.
std::string RunName(const std::vector<std::string>& argv);

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_USER_COMMAND_H_
