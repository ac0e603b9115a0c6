// Memory in whole pages, which goes back to the system when it is freed.
//
// Place: for large pieces that are needed for a while. The heap of a ps keeps
// what was freed (malloc_settings.h), and large pieces break it up.
//
// Threads: compatible.
// Errors: the constructor throws std::bad_alloc; OrExhausted makes a status.
#ifndef COMMON_BASE_PAGE_BUFFER_H_
#define COMMON_BASE_PAGE_BUFFER_H_

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

namespace weir {

class PageBuffer {
 public:
  PageBuffer() = default;
  // REQUIRES: bytes > 0. The memory is zero.
  explicit PageBuffer(size_t bytes) : bytes_(bytes) {
    void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
      throw std::bad_alloc();
    }
    data_ = static_cast<char*>(pages);
  }
  PageBuffer(PageBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  PageBuffer& operator=(PageBuffer other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PageBuffer() {
    if (data_ != nullptr) {
      munmap(data_, bytes_);
    }
  }

  // Null for an empty buffer.
  char* data() { return data_; }
  const char* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace weir

#endif  // COMMON_BASE_PAGE_BUFFER_H_
