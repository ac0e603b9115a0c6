#include "worker/compute/cuda/engine_choices.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"

namespace weir::cuda {
namespace {

// No machine has as many shapes; a file that has is not read to its end.
constexpr int kLinesMax = 100'000;

}  // namespace

EngineChoices::EngineChoices(std::string path) : path_(std::move(path)) {
  std::ifstream file(path_);
  std::string line;
  for (int i = 0; i < kLinesMax && std::getline(file, line); ++i) {
    const size_t tab = line.find('\t');
    if (tab != std::string::npos) {
      choices_[line.substr(0, tab)] = line.substr(tab + 1);
    }
    half_line_ = file.eof();
  }
}

std::string EngineChoices::Find(const std::string& key) const {
  const auto it = choices_.find(key);
  return it == choices_.end() ? "" : it->second;
}

void EngineChoices::Add(const std::string& key, const std::string& choice) {
  choices_[key] = choice;
  if (path_.empty()) {
    return;
  }
  std::error_code ignored;
  std::filesystem::create_directories(
      std::filesystem::path(path_).parent_path(), ignored);
  // One write of less than a page: lines of two processes do not mix.
  std::ofstream file(path_, std::ios::app);
  file << absl::StrCat(half_line_ ? "\n" : "", key, "\t", choice, "\n")
       << std::flush;
  half_line_ = false;
  if (!file) {
    LOG_INFO(
        "{} cannot be written, so the next start will time convolutions "
        "again",
        path_);
    path_.clear();
  }
}

std::string DefaultEngineChoicesPath() {
  const char* const caches = std::getenv("XDG_CACHE_HOME");  // NOLINT
  if (caches != nullptr && *caches == '/') {
    return absl::StrCat(caches, "/weir/convolutions.txt");
  }
  const char* const home = std::getenv("HOME");  // NOLINT
  if (home != nullptr && *home == '/') {
    return absl::StrCat(home, "/.cache/weir/convolutions.txt");
  }
  return "";
}

}  // namespace weir::cuda
