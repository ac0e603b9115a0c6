// How bytes reach a ps: gRPC, shared memory on the same host, in-process in
// tests.
//
// Place: below ParameterClient and the chief, and above proto. A transport
// moves messages and reports what happened. It never retries, so identity and
// retry live in one place, its caller.
//
// Terms
//   shard link  what reaches one ps at one address.
//   stream      one PushPull or PullRows call: many requests, many answers, in
//               no fixed order.
//   timeout     for calls with payloads (Pull, Push, PushRows, Assign), how
//               long nothing may be heard of the ps; while bytes flow the call
//               goes on, if the transport knows of them (peer_watch.h). For all
//               other calls, how long the whole call may take.
//
// Threads: a link is safe. On a stream one thread may Send while another
//   Receives, and any thread may Cancel.
// Errors: the codes of proto/ps.proto, and
//         UNAVAILABLE        the ps is not reachable; the outcome of what was
//                            under way is unknown.
//         DEADLINE_EXCEEDED  nothing was heard in time; the outcome is unknown.
#ifndef CLIENT_CC_TRANSPORT_TRANSPORT_H_
#define CLIENT_CC_TRANSPORT_TRANSPORT_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/payload.h"
#include "proto/ps.pb.h"

namespace weir {

class PushPullStream {
 public:
  virtual ~PushPullStream() = default;

  // Sends `header` with `payload` (borrowed, may be empty). Blocks until the
  // transport has taken it. The bytes must stay unchanged until `released`
  // runs, on any thread, exactly once: after the bytes have left, or when the
  // stream ends. An empty payload may leave `released` empty.
  virtual absl::Status Send(const GradientChunk& header,
                            std::span<const char> payload,
                            std::function<void()> released) = 0;

  // True if Send can block until answers are read; the caller must then Receive
  // on another thread. If false, waking that thread would cost more than the
  // Send.
  virtual bool SendNeedsReceiver() const { return true; }

  // Blocks for the next answer, or returns the status that ended the stream.
  virtual absl::Status Receive(ValueChunk* header, Payload* payload) = 0;

  // Ends the stream from any thread; blocked calls return CANCELLED.
  virtual void Cancel() = 0;

  // Bytes that the way to the ps has moved so far, in both directions, with
  // those of others that share it; -1 where nobody knows. On any thread.
  virtual int64_t BytesMoved() { return -1; }
  // Cancel, for a ps of which nothing was heard for long: ends the connection
  // as well, which then keeps no payload, and is not waited for.
  virtual void Sever() { Cancel(); }
};

// One PullRows call: many requests, many answers, no order.
class PullRowsStream {
 public:
  virtual ~PullRowsStream() = default;
  // Blocks until the transport has taken it.
  virtual absl::Status Send(const PullRowsChunk& request) = 0;
  // Blocks for the next answer, or returns the status that ended the stream.
  virtual absl::Status Receive(RowChunk* header, Payload* payload) = 0;
  // Ends the stream from any thread; blocked calls return CANCELLED.
  virtual void Cancel() = 0;

  // Bytes that the way to the ps has moved so far, in both directions, with
  // those of others that share it; -1 where nobody knows. On any thread.
  virtual int64_t BytesMoved() { return -1; }
  // Cancel, for a ps of which nothing was heard for long: ends the connection
  // as well, which then keeps no payload, and is not waited for.
  virtual void Sever() { Cancel(); }
};

class ShardLink {
 public:
  using Timeout = std::chrono::milliseconds;
  virtual ~ShardLink() = default;

  virtual const std::string& address() const = 0;

  // Opens a stream; errors show at the first Send or Receive.
  virtual std::unique_ptr<PushPullStream> OpenPushPull() = 0;

  // Ends the connections to the ps, if there are any. It is meant for a ps that
  // hangs while payloads wait for it. Calls under way return UNAVAILABLE.
  virtual void Sever() {}

  // How many streams to the ps, each of a link of its own, are of use at the
  // same time; at most `wanted`. May ask the ps.
  virtual int UsefulStreams(int wanted) { return wanted; }

  // Calls `chunk` for every answer, on the calling thread.
  virtual absl::Status Pull(
      const PullRequest& request, Timeout timeout,
      const std::function<absl::Status(const ValueChunk&, const Payload&)>&
          chunk) = 0;

  // Sends one whole contribution's chunks for this shard. `next` fills header
  // and payload of the next chunk, and returns false after the last one. The
  // payloads are borrowed until Push returns.
  virtual absl::StatusOr<PushReply> Push(
      Timeout timeout,
      const std::function<bool(GradientChunk*, std::span<const char>*)>&
          next) = 0;

  // Opens a stream; errors show at the first Send or Receive.
  virtual std::unique_ptr<PullRowsStream> OpenPullRows() = 0;

  // Sends one contribution's update of this shard's tables; `next` as in Push.
  virtual absl::StatusOr<PushRowsReply> PushRows(
      Timeout timeout,
      const std::function<bool(PushRowsChunk*, std::span<const char>*)>&
          next) = 0;

  virtual absl::StatusOr<AssignReply> Assign(
      Timeout timeout,
      const std::function<bool(AssignChunk*, std::span<const char>*)>&
          next) = 0;

  virtual absl::StatusOr<HelloReply> Hello(Timeout timeout) = 0;
  // Makes Hello say from now on that a chief asks.
  // REQUIRES: no call was made yet.
  virtual void SpeakAsChief() {}
  virtual absl::StatusOr<DeclareReply> Declare(const DeclareRequest& request,
                                               Timeout timeout) = 0;
  virtual absl::StatusOr<DeclareReply> Restore(const RestoreRequest& request,
                                               Timeout timeout) = 0;
  virtual absl::Status SetSlots(const SetSlotsRequest& request,
                                Timeout timeout) = 0;
  // Calls `reply` with FROZEN, then WRITTEN, on the calling thread.
  virtual absl::Status Snapshot(
      const SnapshotRequest& request, Timeout timeout,
      const std::function<void(const SnapshotReply&)>& reply) = 0;
  // Asks for the status, with the `hot_ids` ids of each table that had the most
  // updates. More than 0 makes the ps visit every row.
  virtual absl::StatusOr<PsStatus> GetStatus(Timeout timeout, int hot_ids) = 0;
  virtual absl::StatusOr<ShrinkReply> Shrink(const ShrinkRequest& request,
                                             Timeout timeout) = 0;
  virtual absl::Status Shutdown(const ShutdownRequest& request,
                                Timeout timeout) = 0;
};

// Calls `send`, and calls it again while values arrive damaged (DATA_LOSS),
// five times in all. Returns the status of the last call. Use it for Assign,
// whose values may be sent again.
absl::Status SendUntilWhole(const std::function<absl::Status()>& send);

// Zeroed floats in this process's own memory, 64-byte aligned, in huge pages if
// the system has them; null if there is no memory. A forked child gets a copy.
std::shared_ptr<float> NewPrivateBuffer(size_t elements);

class Transport {
 public:
  virtual ~Transport() = default;
  // Zeroed floats, 64-byte aligned; null if there is no memory. Payloads should
  // lie in such a buffer: from elsewhere they may cost the transport a copy.
  virtual std::shared_ptr<float> NewBuffer(size_t elements);
  // Makes a link. It never blocks: an address that nobody serves shows at the
  // first call.
  virtual std::unique_ptr<ShardLink> Connect(const std::string& address) = 0;
};

}  // namespace weir

#endif  // CLIENT_CC_TRANSPORT_TRANSPORT_H_
