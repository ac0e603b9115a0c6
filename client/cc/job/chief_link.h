// A worker's way to its chief: the calls, and the heartbeat's stream.
//
// Place: ChiefClient and TraceSender speak through one. MakeGrpcChiefLink's is
// the product's, and a simulated network has another (sim/).
//
// Threads: safe. Of a stream, one thread reads while another writes; anybody
//   may cancel.
// Errors: UNAVAILABLE        the chief was not reached, or the way broke.
//         DEADLINE_EXCEEDED  no answer within `timeout`.
//         CANCELLED          by a call of this.
//         others             the chief's own.
#ifndef CLIENT_CC_JOB_CHIEF_LINK_H_
#define CLIENT_CC_JOB_CHIEF_LINK_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/chief.pb.h"
#include "proto/security/security.h"
#include "proto/trace.pb.h"

namespace weir {

// One Heartbeat call. It begins with Open; destroy it behind Finish.
class HeartbeatStream {
 public:
  virtual ~HeartbeatStream() = default;
  // Once, before the others. May wait for a connection, until Cancel.
  virtual void Open() = 0;
  // Waits for a command. False: the call has ended.
  virtual bool Read(Command* command) = 0;
  // May wait until the chief reads. False: the call has ended.
  virtual bool Write(const Progress& progress) = 0;
  // Nothing more is written; the chief ends the call.
  virtual void WritesDone() = 0;
  // Why it ended. REQUIRES: Read returned false.
  virtual absl::Status Finish() = 0;
  // From the beginning on, also before Open.
  virtual void Cancel() = 0;
};

class ChiefLink {
 public:
  virtual ~ChiefLink() = default;

  virtual const std::string& address() const = 0;
  // Waits for a connection too, as long as `timeout` allows.
  virtual absl::Status Register(const RegisterRequest& request,
                                std::chrono::milliseconds timeout,
                                RegisterReply* reply) = 0;
  // OK if the chief answers; else why it cannot be reached.
  virtual absl::Status Probe(std::chrono::milliseconds timeout) = 0;
  virtual std::unique_ptr<HeartbeatStream> NewHeartbeat() = 0;
  // One call at a time.
  virtual absl::Status PutTrace(const PutTraceRequest& request,
                                std::chrono::milliseconds timeout,
                                PutTraceReply* reply) = 0;
  // Ends the PutTrace under way, if there is one.
  virtual void CancelPutTrace() = 0;
};

// `security` is how this process proves who it is; null: it does not.
std::shared_ptr<ChiefLink> MakeGrpcChiefLink(
    const std::string& address,
    const std::shared_ptr<const Security>& security);

}  // namespace weir

#endif  // CLIENT_CC_JOB_CHIEF_LINK_H_
