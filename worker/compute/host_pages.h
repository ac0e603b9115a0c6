// Memory of the host in whole pages, and an observer that hears of it.
//
// Place: batches of samples live in such memory, so that a GPU's backend can
// lock it (Backend::host_pages) and copy from it beside its work.
//
// Invariants
//   I1. The observer hears of every range before its first use and after its
//       last, with the same address.
// Threads: those of the observer.
// Errors: allocate throws std::bad_alloc.
#ifndef WORKER_COMPUTE_HOST_PAGES_H_
#define WORKER_COMPUTE_HOST_PAGES_H_

#include <sys/mman.h>

#include <cstddef>
#include <limits>
#include <new>
#include <type_traits>
#include <vector>

namespace weir {

// Safe for calls from any threads.
class PageObserver {
 public:
  virtual ~PageObserver() = default;
  virtual void OnAllocate(void* pages, size_t bytes) = 0;
  virtual void OnFree(void* pages) = 0;
};

template <class T>
class PageAllocator {
 public:
  using value_type = T;  // NOLINT(readability-identifier-naming)
  // A vector takes its observer along with its memory.
  // NOLINTBEGIN(readability-identifier-naming): names of the standard.
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;
  // NOLINTEND(readability-identifier-naming)

  PageAllocator() = default;
  // `observer` may be null, and outlives all memory.
  explicit PageAllocator(PageObserver* observer) : observer_(observer) {}
  template <class U>
  explicit PageAllocator(const PageAllocator<U>& other)
      : observer_(other.observer()) {}

  T* allocate(size_t count) {
    if (count > std::numeric_limits<size_t>::max() / sizeof(T)) {
      throw std::bad_alloc();
    }
    void* const pages = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
      throw std::bad_alloc();
    }
    if (observer_ != nullptr) {
      observer_->OnAllocate(pages, count * sizeof(T));
    }
    return static_cast<T*>(pages);
  }
  void deallocate(T* pages, size_t count) {
    if (observer_ != nullptr) {
      observer_->OnFree(pages);
    }
    munmap(pages, count * sizeof(T));
  }
  PageObserver* observer() const { return observer_; }
  bool operator==(const PageAllocator&) const = default;

 private:
  PageObserver* observer_ = nullptr;
};

template <class T>
using PageVector = std::vector<T, PageAllocator<T>>;

}  // namespace weir

#endif  // WORKER_COMPUTE_HOST_PAGES_H_
