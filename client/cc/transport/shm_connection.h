// One connection to a ps on this host through shared memory: requests one way,
// answers the other.
//
// Place: under shm_stream.h; proto/wire/shm_message.h is the specification.
//
// Threads: as for PushPullStream: one thread may Send while another Receives,
//   and any thread may Cancel.
// Errors: UNAVAILABLE        the ps is gone, or has ended the connection.
//         CANCELLED          Cancel was called.
//         DEADLINE_EXCEEDED  Receive: no answer before the deadline.
//         RESOURCE_EXHAUSTED  Send: no shared memory for a payload.
//         others             as the ps ended the connection.
// Cost: a payload in one of the transport's buffers (Transport::NewBuffer) is
//   not copied, nor is what comes back.
#ifndef CLIENT_CC_TRANSPORT_SHM_CONNECTION_H_
#define CLIENT_CC_TRANSPORT_SHM_CONNECTION_H_

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cc/transport/shared_buffers.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/io/payload.h"
#include "common/threads/thread.h"
#include "proto/wire/shm_message.h"

namespace weir {

class ShmConnection {
 public:
  using Deadline = MonotonicClock::time_point;
  struct Answer {
    std::string message;
    ShmAnswer head;               // of `message`; never kEnd
    std::span<const char> chunk;  // points into `message`
    Payload payload;              // may outlive the connection
  };

  // Connects to the ps at `shm_name` with the ticket of the same HelloReply;
  // `address` is for messages. UNAVAILABLE if the ps is on another host or this
  // process gets no shared memory, PERMISSION_DENIED if the ps belongs to
  // another user. After any other code a later call may succeed:
  // RESOURCE_EXHAUSTED if the ps or this process has no session, thread or
  // descriptor to spare, DEADLINE_EXCEEDED if the ps does not answer.
  static absl::StatusOr<std::unique_ptr<ShmConnection>> Open(
      const std::string& shm_name, const std::string& ticket,
      const std::string& address, std::shared_ptr<SharedBuffers> buffers);
  // Waits until the ps has let go of this process's memory. A ps that is
  // stopped keeps the bytes as they are (SharedBuffers::MakePrivate).
  ~ShmConnection();

  // Sends one message, as PushPullStream::Send.
  absl::Status Send(ShmRequest::Kind kind, const std::string& chunk,
                    std::span<const char> payload,
                    std::function<void()> released);
  // Blocks for the next answer, until `deadline`.
  absl::Status Receive(Answer* answer, Deadline deadline = Deadline::max());
  void Cancel();

 private:
  class State;

  ShmConnection(std::string address, std::shared_ptr<State> state,
                Thread listener);
  absl::Status Named(const absl::Status& status) const;
  absl::Status End(const absl::Status& status);
  absl::Status Ended();
  absl::Status SendMessage(const ShmRequest& head, const std::string& chunk,
                           std::span<const char> inline_payload,
                           const std::function<void()>& taken);
  absl::Status Decode(Answer* answer);

  const std::string address_;
  const std::shared_ptr<State> state_;
  Thread listener_;

  Mutex mutex_;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir

#endif  // CLIENT_CC_TRANSPORT_SHM_CONNECTION_H_
