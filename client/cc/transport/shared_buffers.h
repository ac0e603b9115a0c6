// The buffers of this process that a ps on the same host may map.
//
// Place: ShmTransport::NewBuffer hands them out, and its streams look up here
// which buffer a payload lies in.
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
  // Makes a buffer that `buffers` finds as long as somebody holds it. Returns
  // null if the system has no shared memory.
  static std::shared_ptr<float> New(
      const std::shared_ptr<SharedBuffers>& buffers, size_t bytes);

  // Takes a buffer back from a ps that does not let go of it. The ps keeps the
  // bytes that are there now, Find does not return the buffer any more, and
  // this process may go on writing to it.
  absl::Status MakePrivate(const SharedMemory& memory);

  // The memory that holds all of `bytes` and may be shared, or null.
  std::shared_ptr<SharedMemory> Find(std::span<const char> bytes) const;

 private:
  mutable Mutex mutex_;
  struct Buffer {
    std::shared_ptr<SharedMemory> memory;
    bool is_private = false;
  };
  // By the address of the first byte.
  std::map<const char*, Buffer> buffers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // CLIENT_CC_TRANSPORT_SHARED_BUFFERS_H_
