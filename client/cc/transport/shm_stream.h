// The client's ends of PushPull, PullRows and PushRows through shared memory.
//
// Place: opened by shm_transport.cc, over shm_connection.h.
#ifndef CLIENT_CC_TRANSPORT_SHM_STREAM_H_
#define CLIENT_CC_TRANSPORT_SHM_STREAM_H_

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "client/cc/transport/shm_connection.h"
#include "client/cc/transport/transport.h"

namespace weir {

std::unique_ptr<PushPullStream> MakeShmPushPull(
    std::unique_ptr<ShmConnection> connection);
std::unique_ptr<PullRowsStream> MakeShmPullRows(
    std::unique_ptr<ShmConnection> connection);

// Sends one update, as DataLink::PushRows. After an error the caller must drop
// the connection, since answers may still be on their way.
absl::StatusOr<PushRowsReply> PushRowsThroughShm(
    ShmConnection* connection, std::chrono::milliseconds timeout,
    const ChunkSource<PushRowsChunk>& next);

}  // namespace weir

#endif  // CLIENT_CC_TRANSPORT_SHM_STREAM_H_
