// The buffers of a process that a ps on this host may map.
//
// Place: what ShmTransport::NewBuffer hands out, and where its streams look a
// payload up.
//
// Threads: safe.
#ifndef CLIENT_CC_TRANSPORT_SHARED_BUFFERS_H_
#define CLIENT_CC_TRANSPORT_SHARED_BUFFERS_H_

#include <cstddef>
#include <map>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/io/shared_memory.h"

namespace weir {

class SharedBuffers {
 public:
  // A buffer that `buffers` finds while it lives; null when the system has no
  // shared memory.
  static std::shared_ptr<float> New(
      const std::shared_ptr<SharedBuffers>& buffers, size_t bytes);

  // Takes a buffer back from a ps that does not let go of it: the ps keeps what
  // is there now, Find does not know it any more, and whoever writes it goes
  // on.
  absl::Status MakePrivate(const SharedMemory& memory);

  // The memory that holds all of `bytes` and may be shared, or null.
  std::shared_ptr<SharedMemory> Find(std::span<const char> bytes) const;

 private:
  mutable Mutex mutex_;
  struct Buffer {
    std::shared_ptr<SharedMemory> memory;
    bool is_private = false;
  };
  // By the first byte.
  std::map<const char*, Buffer> buffers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // CLIENT_CC_TRANSPORT_SHARED_BUFFERS_H_
