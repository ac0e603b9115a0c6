// A fresh directory for one test, under the runner's temporary directory.
#ifndef TESTS_COMMON_TEMP_DIR_H_
#define TESTS_COMMON_TEMP_DIR_H_

#include <cstdlib>
#include <string>

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

}  // namespace weir

#endif  // TESTS_COMMON_TEMP_DIR_H_
