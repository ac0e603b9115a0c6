// Whether a peer that owes an answer is still there.
//
// Place: below Exchange and the calls of grpc_transport.cc, which ask the same
// question of a stream and of a call.
//
// Terms
//   look     a periodic question whether the peer is lost.
//   traffic  the bytes that the connection has moved so far, in both
//            directions, as the kernel knows them (tcp_traffic.h).
//
// Invariants
//   I1. A peer is lost when nothing was heard of it for `lost_after`.
//   I2. A connection on which bytes flow is alive, however long one answer
//       takes: kFlowBytes of traffic count as an answer. Pings of gRPC and
//       empty answers to others are far fewer.
//   I3. Traffic stops to count after kUnansweredBytesMax without an answer.
//       Then others on the connection are served, and this one is stuck.
//   I4. Time in which nobody looked does not count as silence of the peer. If a
//       look comes later after the one before than kLateMin and than a quarter
//       of lost_after (our process slept, or its machine did), the count begins
//       anew, since answers may wait in the socket.
// Threads: compatible.
// Source: "Slow links" in docs/design_notes.md.
#ifndef CLIENT_CC_TRANSPORT_PEER_WATCH_H_
#define CLIENT_CC_TRANSPORT_PEER_WATCH_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace weir {

class PeerWatch {
 public:
  // 13 kbit/s where lost_after is 10 s: slower than any link that is of use.
  static constexpr int64_t kFlowBytes = 16 << 10;
  // Many times what one stream has under way in both directions.
  static constexpr int64_t kUnansweredBytesMax = 64 << 20;
  // A look may be this late on a busy machine, without any sleep.
  static constexpr std::chrono::milliseconds kLateMin{500};

  explicit PeerWatch(std::chrono::milliseconds lost_after);

  // How often the caller must look.
  std::chrono::milliseconds period() const;

  // Says that an answer is here, or that work begins.
  void Heard(int64_t now_ns);
  // Whether the caller should find out the traffic before it looks.
  bool WantsTraffic(int64_t now_ns) const;
  // Tells the traffic so far; negative if nobody knows it.
  void NoteTraffic(int64_t bytes, int64_t now_ns);
  // Looks at a peer that owes nothing; only the time of the look is kept.
  void LookIdle(int64_t now_ns) { looked_ns_ = now_ns; }
  // Looks; returns true if the peer is lost.
  bool Look(int64_t now_ns);

  // Says why a peer is lost, such as "unreachable for 10 s".
  std::string Reason() const;

 private:
  const int64_t lost_after_ns_;
  const int64_t late_ns_;
  int64_t since_ns_ = 0;
  int64_t looked_ns_ = 0;  // the last look; before the first, when work began
  int64_t traffic_ = -1;   // the traffic that was counted last; -1: unknown
  int64_t unanswered_bytes_ = 0;
};

}  // namespace weir

#endif  // CLIENT_CC_TRANSPORT_PEER_WATCH_H_
