#include "deploy/cli/bin_dir.h"

#include <cstdlib>
#include <filesystem>

namespace weir {

std::string BinDir() {
  // Read once, before any thread exists.
  const char* named = std::getenv("WEIR_BIN_DIR");  // NOLINT
  if (named != nullptr) {
    return named;
  }
  // The link is resolved, so that a program that was called by a short name in
  // bin/ also finds the tree.
  std::error_code ignored;
  return BinDirOf(std::filesystem::read_symlink("/proc/self/exe", ignored));
}

std::string BinDirOf(const std::string& program) {
  const std::filesystem::path folder =
      std::filesystem::path(program).parent_path();
  std::error_code ignored;
  if (std::filesystem::exists(folder / "deploy/cli/weir_cli", ignored)) {
    return folder;
  }
  return folder.parent_path().parent_path();
}

}  // namespace weir
