// Owns a file descriptor.
#ifndef COMMON_IO_FILE_DESCRIPTOR_H_
#define COMMON_IO_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace weir {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

}  // namespace weir

#endif  // COMMON_IO_FILE_DESCRIPTOR_H_
