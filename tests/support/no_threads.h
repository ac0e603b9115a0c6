// A system that has no thread to give, for as long as an object lives.
//
// The default stack of a new thread becomes larger than the address space, so
// that std::thread throws as it does where the limit of threads is reached.
#ifndef TESTS_SUPPORT_NO_THREADS_H_
#define TESTS_SUPPORT_NO_THREADS_H_

#include <pthread.h>

#include <cstddef>

#include "common/base/check.h"

namespace weir {

class NoThreads {
 public:
  NoThreads() {
    WEIR_CHECK(pthread_getattr_default_np(&before_) == 0);
    pthread_attr_t huge = before_;
    WEIR_CHECK(pthread_attr_setstacksize(&huge, size_t{1} << 47) == 0);
    WEIR_CHECK(pthread_setattr_default_np(&huge) == 0);
  }
  ~NoThreads() {
    WEIR_CHECK(pthread_setattr_default_np(&before_) == 0);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace weir

#endif  // TESTS_SUPPORT_NO_THREADS_H_
