#include "client/cc/transport/peer_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/cc/transport/retry_policy.h"

namespace weir {

PeerWatch::PeerWatch(std::chrono::milliseconds lost_after)
    : lost_after_ns_(std::chrono::nanoseconds(lost_after).count()),
      late_ns_(std::max(lost_after_ns_ / 4,
                        std::chrono::nanoseconds(kLateMin).count())) {}

// A twentieth of lost_after, so that a loss is found at most 5 % late, within
// what a thread can do (5 ms) and what a caller should wait for (250 ms).
std::chrono::milliseconds PeerWatch::period() const {
  return std::clamp(std::chrono::milliseconds(lost_after_ns_ / 20'000'000),
                    std::chrono::milliseconds(5),
                    std::chrono::milliseconds(250));
}

void PeerWatch::Heard(int64_t now_ns) {
  since_ns_ = now_ns;  // I1 counts from here
  traffic_ = -1;
  unanswered_bytes_ = 0;
  if (looked_ns_ == 0) {
    looked_ns_ = now_ns;
  }
}

bool PeerWatch::WantsTraffic(int64_t now_ns) const {
  // To find out costs system calls, and most answers come long before.
  return now_ns - since_ns_ >= lost_after_ns_ / 4;
}

void PeerWatch::NoteTraffic(int64_t bytes, int64_t now_ns) {
  if (bytes < 0) {
    return;
  }
  // Fewer bytes than before mean that this is another connection.
  if (traffic_ < 0 || bytes < traffic_) {
    traffic_ = bytes;
    return;
  }
  if (bytes - traffic_ < kFlowBytes) {
    return;
  }
  unanswered_bytes_ += bytes - traffic_;
  traffic_ = bytes;
  if (unanswered_bytes_ <= kUnansweredBytesMax) {  // I3
    since_ns_ = now_ns;                            // I2
  }
}

bool PeerWatch::Look(int64_t now_ns) {
  const bool late = now_ns - looked_ns_ > late_ns_;
  looked_ns_ = now_ns;
  if (late) {
    since_ns_ = now_ns;  // I4
  }
  return now_ns - since_ns_ >= lost_after_ns_;  // I1
}

std::string PeerWatch::Reason() const {
  if (unanswered_bytes_ > kUnansweredBytesMax) {  // I3
    return absl::StrCat("answered nothing while ", unanswered_bytes_ >> 20,
                        " MiB of others passed");
  }
  return UnreachableFor(std::chrono::nanoseconds(lost_after_ns_));
}

}  // namespace weir
