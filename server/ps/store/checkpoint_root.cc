#include "server/ps/store/checkpoint_root.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

// `path` with links followed as far as it exists, and no slash at its end.
// Empty on an error.
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

// Whether `inner` is `top` or lies below it; both are resolved. The slash keeps
// "/ckpt-old" from counting as below "/ckpt".
bool IsBelow(const std::string& inner, const std::string& top) {
  if (inner == top || top == "/") {
    return true;
  }
  return inner.rfind(top + "/", 0) == 0;
}

}  // namespace

absl::Status CheckBelowRoot(const std::string& root,
                            const std::string& directory) {
  if (root.empty()) {
    return absl::OkStatus();
  }
  const fs::path named(directory);
  std::error_code error;
  // ".." is refused as it stands: resolving would follow links first, and a
  // name that climbs up is never what a chief sends.
  const bool up =
      std::any_of(named.begin(), named.end(),
                  [](const fs::path& part) { return part == ".."; });
  if (!up && named.is_absolute()) {
    const std::string top = Resolved(root, &error);
    std::string inner;
    if (!error) {
      inner = Resolved(directory, &error);
    }
    if (!error && IsBelow(inner, top)) {
      return absl::OkStatus();
    }
  }
  std::string message =
      absl::StrCat("'", directory, "' is not below '", root,
                   "', where this ps may keep checkpoints (--checkpoint_root)");
  if (error) {
    absl::StrAppend(&message, ": ", error.message());
  }
  return absl::InvalidArgumentError(message);
}

}  // namespace weir
