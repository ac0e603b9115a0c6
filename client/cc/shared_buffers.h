// The buffers of a process that a ps on this host may map.
//
// Place: what ShmTransport::NewBuffer hands out, and where its streams look a
// payload up.
//
// Threads: safe.
#ifndef CLIENT_CC_SHARED_BUFFERS_H_
#define CLIENT_CC_SHARED_BUFFERS_H_

#include <cstddef>
#include <map>
#include <memory>
#include <span>

#include "common/mutex.h"
#include "common/shared_memory.h"

namespace weir {

class SharedBuffers {
 public:
  // A buffer that `buffers` finds while it lives; null when the system has no
  // shared memory.
  static std::shared_ptr<float> New(
      const std::shared_ptr<SharedBuffers>& buffers, size_t bytes);

  // The memory that holds all of `bytes`, or null.
  std::shared_ptr<SharedMemory> Find(std::span<const char> bytes) const;

 private:
  mutable Mutex mutex_;
  // By the first byte.
  std::map<const char*, std::shared_ptr<SharedMemory>> memory_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // CLIENT_CC_SHARED_BUFFERS_H_
