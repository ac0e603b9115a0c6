// How bytes reach a ps: gRPC, shared memory on the same host, in-process in
// tests.
//
// Place: below ParameterClient and the chief, and above proto. A transport
// moves messages and reports what happened. It never retries, so identity and
// retry live in one place, its caller.
//
// Terms
//   link     what reaches one ps at one address: a data link moves blocks and
//            rows, a control link does the rest.
//   stream   one PushPull or PullRows call.
//   timeout  for calls with payloads (PushRows, Assign), how long nothing may
//            be heard of the ps; while bytes flow the call goes on, if the
//            transport knows of them (peer_watch.h). For all other calls, how
//            long the whole call may take.
//
// Threads: a link is safe. On a stream one thread may Send while another
//   Receives, and any thread may Cancel.
// Errors: the codes of proto/ps.proto, and
//         UNAVAILABLE        the ps is not reachable; the outcome of what was
//                            under way is unknown.
//         DEADLINE_EXCEEDED  nothing was heard in time; the outcome is unknown.
#ifndef CLIENT_CC_TRANSPORT_TRANSPORT_H_
#define CLIENT_CC_TRANSPORT_TRANSPORT_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/payload.h"
#include "proto/ps.pb.h"

namespace weir {

// What ends a call that may be blocked, from any thread.
class DataCall {
 public:
  virtual ~DataCall() = default;

  // Ends the call; what is blocked in it returns CANCELLED.
  virtual void Cancel() = 0;
  // Bytes that the way to the ps has moved so far, in both directions, with
  // those of others that share it; -1 where nobody knows.
  virtual int64_t BytesMoved() { return -1; }
  // Cancel, for a ps of which nothing was heard for long: ends the connection
  // as well, which then keeps no payload, and is not waited for.
  virtual void Sever() { Cancel(); }
};

// One call with many requests and many answers, in no fixed order.
template <typename Request, typename Answer>
class DataStream : public DataCall {
 public:
  // Sends `header` with `payload` (borrowed, may be empty). Blocks until the
  // transport has taken it. The bytes must stay unchanged until `released`
  // runs, on any thread, exactly once: after the bytes have left, or when the
  // stream ends. An empty payload may leave `released` empty.
  virtual absl::Status Send(const Request& header,
                            std::span<const char> payload,
                            std::function<void()> released) = 0;

  // True if Send can block until answers are read; the caller must then Receive
  // on another thread. If false, waking that thread would cost more than the
  // Send.
  virtual bool SendNeedsReceiver() const { return true; }

  // Blocks for the next answer, or returns the status that ended the stream.
  virtual absl::Status Receive(Answer* header, Payload* payload) = 0;
};

using PushPullStream = DataStream<GradientChunk, ValueChunk>;
using PullRowsStream = DataStream<PullRowsChunk, RowChunk>;

// Fills header and payload of the next chunk of a call, and returns false after
// the last one. The payloads are borrowed until the call returns.
template <typename Chunk>
using ChunkSource = std::function<bool(Chunk*, std::span<const char>*)>;

using LinkTimeout = std::chrono::milliseconds;

// Blocks and rows: what a worker says to a ps.
class DataLink {
 public:
  using Timeout = LinkTimeout;
  virtual ~DataLink() = default;

  // Open a stream; errors show at the first Send or Receive.
  virtual std::unique_ptr<PushPullStream> OpenPushPull() = 0;
  virtual std::unique_ptr<PullRowsStream> OpenPullRows() = 0;

  // Sends one contribution's update of this shard's tables.
  virtual absl::StatusOr<PushRowsReply> PushRows(
      Timeout timeout, const ChunkSource<PushRowsChunk>& next) = 0;

  // Asks whether the ps is there; see ControlLink.
  virtual absl::StatusOr<HelloReply> Hello(Timeout timeout) = 0;

  // Ends the connections to the ps, if there are any. It is meant for a ps that
  // hangs while payloads wait for it. Calls under way return UNAVAILABLE.
  virtual void Sever() {}

  // How many streams to the ps, each of a link of its own, are of use at the
  // same time: `wanted`, or what the transport takes for the best where that is
  // 0. May ask the ps.
  virtual int UsefulStreams(int wanted) { return std::max(wanted, 1); }
};

// What a chief, or a program in its place, says to a ps.
class ControlLink {
 public:
  using Timeout = LinkTimeout;
  virtual ~ControlLink() = default;

  virtual const std::string& address() const = 0;

  virtual absl::StatusOr<HelloReply> Hello(Timeout timeout) = 0;
  // Makes Hello say from now on that a chief asks.
  // REQUIRES: no call was made yet.
  virtual void SpeakAsChief() {}
  virtual absl::StatusOr<DeclareReply> Declare(const DeclareRequest& request,
                                               Timeout timeout) = 0;
  virtual absl::StatusOr<DeclareReply> Restore(const RestoreRequest& request,
                                               Timeout timeout) = 0;
  virtual absl::StatusOr<AssignReply> Assign(
      Timeout timeout, const ChunkSource<AssignChunk>& next) = 0;
  virtual absl::Status SetSlots(const SetSlotsRequest& request,
                                Timeout timeout) = 0;
  // Calls `reply` with FROZEN, then WRITTEN, on the calling thread.
  virtual absl::Status Snapshot(
      const SnapshotRequest& request, Timeout timeout,
      const std::function<void(const SnapshotReply&)>& reply) = 0;
  // Asks for the status, with the `hot_ids` ids of each table that had the most
  // updates. More than 0 makes the ps visit every row.
  virtual absl::StatusOr<PsStatus> GetStatus(const GetStatusRequest& request,
                                             Timeout timeout) = 0;
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
  // Make a link. They never block: an address that nobody serves shows at the
  // first call.
  virtual std::unique_ptr<ControlLink> Connect(const std::string& address) = 0;
  virtual std::unique_ptr<DataLink> ConnectData(const std::string& address) = 0;
};

}  // namespace weir

#endif  // CLIENT_CC_TRANSPORT_TRANSPORT_H_
