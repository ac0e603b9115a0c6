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
  // bin/ also finds the tree: ROOT/deploy/cli/weir_cli.
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored)
      .parent_path()
      .parent_path()
      .parent_path();
}

}  // namespace weir
