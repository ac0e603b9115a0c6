// Fresh directories for one test, under the runner's temporary directory.
#ifndef TESTS_COMMON_TEMP_DIR_H_
#define TESTS_COMMON_TEMP_DIR_H_

#include <sys/stat.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace weir {

// The runner removes what is under it.
inline std::string MakeTempDir() {
  std::string path = testing::TempDir();
  if (path.back() != '/') {
    path += '/';
  }
  path += "weir_XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    std::abort();
  }
  return path;
}

// Where the stores of the test that runs keep checkpoints: the same directory
// at each call. One thread.
inline std::string CheckpointRoot() {
  static const testing::TestInfo* test = nullptr;
  static std::string root;
  const auto* const running =
      testing::UnitTest::GetInstance()->current_test_info();
  if (std::exchange(test, running) != running || root.empty()) {
    root = MakeTempDir();
  }
  return root;
}

// A fresh directory in it, by a name that a checkpoint may have.
inline std::string MakeCheckpointDir() {
  static int step = 1000;
  const std::string path = CheckpointRoot() + "/ckpt-" + std::to_string(++step);
  if (::mkdir(path.c_str(), 0700) != 0) {
    std::abort();
  }
  return path;
}

inline std::string NameOf(const std::string& path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

}  // namespace weir

#endif  // TESTS_COMMON_TEMP_DIR_H_
