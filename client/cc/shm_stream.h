// The client's end of a PushPull stream through shared memory.
//
// Place: opened by shm_transport.cc; proto/shm_message.h is the specification.
#ifndef CLIENT_CC_SHM_STREAM_H_
#define CLIENT_CC_SHM_STREAM_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cc/shared_buffers.h"
#include "client/cc/transport.h"

namespace weir {

// Connects to the ps at `shm_name`; `address` is for messages.
// UNAVAILABLE: the ps is on another host. PERMISSION_DENIED: of another user.
absl::StatusOr<std::unique_ptr<PushPullStream>> OpenShmStream(
    const std::string& shm_name, const std::string& address,
    std::shared_ptr<SharedBuffers> buffers);

}  // namespace weir

#endif  // CLIENT_CC_SHM_STREAM_H_
