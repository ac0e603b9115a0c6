#include "server/ps/store/checkpoint_root.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

// With links followed as far as the path exists, and no slash at its end.
std::string Resolved(const std::string& path, std::error_code* error) {
  const fs::path absolute = fs::absolute(path, *error);
  if (*error) {
    return "";
  }
  std::string text = fs::weakly_canonical(absolute, *error).string();
  while (text.size() > 1 && text.back() == '/') {
    text.pop_back();
  }
  return text;
}

}  // namespace

absl::Status CheckBelowRoot(const std::string& root,
                            const std::string& directory) {
  if (root.empty()) {
    return absl::OkStatus();
  }
  const fs::path named(directory);
  std::error_code error;
  const bool up =
      std::any_of(named.begin(), named.end(),
                  [](const fs::path& part) { return part == ".."; });
  if (!up && named.is_absolute()) {
    const std::string top = Resolved(root, &error);
    const std::string inner = error ? "" : Resolved(directory, &error);
    if (!error &&
        (inner == top || inner.rfind(top == "/" ? top : top + "/", 0) == 0)) {
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", directory, "' is not below '", root,
                   "', where this ps may keep checkpoints (--checkpoint_root)",
                   error ? absl::StrCat(": ", error.message()) : ""));
}

}  // namespace weir
