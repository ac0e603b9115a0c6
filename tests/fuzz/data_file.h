// A file without a name whose contents change from input to input, for readers
// that open a path.
//
// Threads: compatible.
#ifndef TESTS_FUZZ_DATA_FILE_H_
#define TESTS_FUZZ_DATA_FILE_H_

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "common/base/check.h"

namespace weir {

class DataFile {
 public:
  DataFile() : fd_(memfd_create("fuzz", 0)) { WEIR_CHECK(fd_ >= 0); }
  ~DataFile() { close(fd_); }
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

  void Put(const std::string& contents) {
    WEIR_CHECK(ftruncate(fd_, 0) == 0);
    WEIR_CHECK(pwrite(fd_, contents.data(), contents.size(), 0) ==
               static_cast<ssize_t>(contents.size()));
  }

 private:
  const int fd_;
};

}  // namespace weir

#endif  // TESTS_FUZZ_DATA_FILE_H_
