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
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored)
      .parent_path()
      .parent_path()
      .parent_path();
}

}  // namespace weir
