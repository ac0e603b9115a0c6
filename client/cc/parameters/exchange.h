// What the exchanges of blocks and of rows with a shard have in common: when to
// open the connection, what to repeat, and when the shard is lost.
//
// Place: the base of ShardExchange, RowPullExchange and RowPushExchange. These
// decide without I/O: a client's threads ask Next() what there is to do, do it,
// and report what happened (shard_client.h).
//
// Invariants
//   I1. An exchange fails once, for good: when the shard is lost while work
//       waits (peer_watch.h), when its process is another one, or at the first
//       error that no repeat mends (retry_policy.h).
//   I2. An idle exchange expects no answer, so silence counts from the moment
//       work was added.
// Threads: compatible; the client serialises.
// Errors (status): FAILED_PRECONDITION  unreachable for lost_after, restarted,
//                                       or refused.
//                  others               as the ps answered.
//   The message names shard and address.
#ifndef CLIENT_CC_PARAMETERS_EXCHANGE_H_
#define CLIENT_CC_PARAMETERS_EXCHANGE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/cc/transport/peer_watch.h"
#include "client/cc/transport/retry_policy.h"
#include "common/base/clock.h"

namespace weir {

class Exchange {
 public:
  struct ConnectionOptions {
    int shard = 0;
    std::string address;
    std::chrono::milliseconds lost_after{10000};
    Clock* clock = Clock::Real();
    // The process of the ps; 0 before its first answer. Exchanges with the same
    // shard may share it.
    std::shared_ptr<uint64_t> incarnation = std::make_shared<uint64_t>(0);
  };

  // Before something is sent again that the ps had no room to keep until its
  // turn (DEFERRED).
  static constexpr int64_t kDeferPauseNs = 10'000'000;

  struct Step {
    enum Kind {
      kIdle,     // nothing to do until something changes
      kConnect,  // open a stream
      kSend,
      kReceive,  // wait for the next answer
      kSleep,    // nothing to do before `until_ns`
      kFailed,   // see status()
    };
    Kind kind = kIdle;
    int64_t until_ns = 0;
  };

  explicit Exchange(ConnectionOptions options);
  virtual ~Exchange() = default;

  // --- What happens on the stream.

  void OnConnected() {
    connected_ = true;
    draining_ = false;  // a send on the stream before may have failed late
  }
  // A send failed. Receive then brings what came before, and the reason.
  void OnSendFailed() { draining_ = true; }

  // Fails when work has waited too long. Returns true when the stream must be
  // cut, because a thread may be blocked in it. Must be called every
  // PeerWatch::period(), also when there is no work.
  bool CheckLost();
  // Whether CheckLost would like to hear of traffic first (peer_watch.h).
  bool WantsTraffic() const { return Waits() && watch_.WantsTraffic(now_ns()); }
  void NoteTraffic(int64_t bytes) { watch_.NoteTraffic(bytes, now_ns()); }

  // How long a ps may keep a want open before it answers that the values are
  // not there yet. A fraction of lost_after, so that a ps answers several times
  // before it counts as lost.
  uint32_t want_timeout_ms() const;

  const absl::Status& status() const { return status_; }

 protected:
  // Whether the connection is needed.
  virtual bool HasWork() const = 0;
  // Whether the shard owes an answer, so that its silence counts.
  virtual bool Waits() const { return HasWork(); }

  // Called before work is added.
  void NoteWork();
  // Says what to do while there is no connection to work on, and returns true;
  // false if it is open. `sending` and `receiving`: what threads still do.
  bool NextOfConnection(bool sending, bool receiving, Step* step) const;
  // An answer came. Returns false if it is of no use: the exchange has failed.
  bool Heard(uint64_t incarnation);
  // The stream or call ended with `status`. Returns true if what has no answer
  // is to be sent again; `resend` says that it is, after any code.
  bool Broken(const absl::Status& status, bool resend = false);
  // The same for a call that ends by itself when nothing is heard. `silent`: it
  // ended so, and the ps did not say Hello either.
  void BrokenCall(const absl::Status& status, bool silent);
  void Fail(const absl::Status& status);
  // The same for what is not the ps's fault: the message does not name it.
  void FailHere(const absl::Status& status) { status_ = status; }
  int64_t now_ns() const { return connection_.clock->NowNs(); }

 private:
  const ConnectionOptions connection_;
  bool connected_ = false;
  bool draining_ = false;  // a send failed, and the end is still to be received
  int64_t connect_at_ns_ = 0;
  RetryPolicy retry_;
  PeerWatch watch_;
  absl::Status status_;
};

}  // namespace weir

#endif  // CLIENT_CC_PARAMETERS_EXCHANGE_H_
