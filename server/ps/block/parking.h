// Waits that end when their condition holds, at a deadline, or when the place
// is closed.
//
// Place: every block has one for pulls of values, the tables have one for pulls
//   of rows. The owner knows the conditions; no thread waits.
//
// Terms
//   share  how many waits a sender may park at one place, and how many bytes
//          they may hold. Every slot has its own, readers, who hold no slot,
//          have one together: so no sender's waits are refused because of
//          another's.
//
// Invariants
//   I1. Park takes a wait; Take or Close gives it back to be ended, exactly
//       once.
//   I2. After Close nothing parks.
// Threads: compatible, but for empty(), which any thread may ask. Whoever makes
//   a condition hold under the owner's lock and then drops it may skip Take
//   when empty(): who parks later sees the condition.
// Errors: RESOURCE_EXHAUSTED  the share is used up.
#ifndef SERVER_PS_BLOCK_PARKING_H_
#define SERVER_PS_BLOCK_PARKING_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/ps.pb.h"

namespace weir {

struct ParkingShares {
  int64_t per_slot = 0;
  int64_t readers = 0;
  int64_t bytes = 0;  // that the waits of one slot hold, or those of readers
};

// A time that no deadline has passed: Take looks at conditions alone.
inline constexpr int64_t kNoDeadlinePassed =
    std::numeric_limits<int64_t>::min();

// How long a pull waits: kWaitDefaultMs when `want` does not say. The upper
// bound keeps a client from holding a parked wait for ever.
inline constexpr uint32_t kWaitDefaultMs = 2000;
inline constexpr uint32_t kWaitMaxMs = 10000;
inline int64_t WaitNs(const Want& want) {
  uint32_t ms = kWaitDefaultMs;
  if (want.timeout_ms() != 0) {
    ms = std::min(want.timeout_ms(), kWaitMaxMs);
  }
  return int64_t{ms} * 1000000;
}

template <class Wait>
class Parking {
 public:
  struct Parked {
    Wait wait;
    int64_t slot = 0;  // kReader: a reader's
    int64_t bytes = 0;
    int64_t deadline_ns = 0;
  };
  // What the condition of a wait says; nullopt: it does not hold yet, and of a
  // wait that has ended: its deadline passed first.
  template <class Answer>
  using Said = absl::StatusOr<std::optional<Answer>>;
  template <class Answer>
  using Ended = std::vector<std::pair<Wait, Said<Answer>>>;

  // `what` names the place in messages; `total`, borrowed, counts the waits of
  // all places together.
  Parking(const ParkingShares& shares, const char* what,
          std::atomic<int64_t>* total)
      : shares_(shares), what_(what), total_(*total) {}
  Parking(const Parking&) = delete;
  Parking& operator=(const Parking&) = delete;

  // Parks `wait`, which asks for `want` and holds `bytes`. It is unchanged
  // after an error.
  absl::Status Park(const Sender& sender, const Want& want, int64_t now_ns,
                    Wait&& wait, int64_t bytes = 0) {
    if (!closed_.ok()) {
      return closed_;  // I2
    }
    int64_t slot = kReader;
    if (sender.generation() != 0) {
      slot = sender.slot();
    }
    if (absl::Status status = CheckShare(slot, bytes); !status.ok()) {
      return status;
    }
    parked_.push_back({std::move(wait), slot, bytes, now_ns + WaitNs(want)});
    Count(1);
    return absl::OkStatus();
  }

  // In the order in which they were parked.
  const std::vector<Parked>& waits() const { return parked_; }

  // Takes out what has ended at `now_ns`: `said` has the answer of each of
  // waits(), in its order.
  template <class Answer>
  Ended<Answer> Take(int64_t now_ns, std::vector<Said<Answer>> said) {
    Ended<Answer> ended;
    std::vector<Parked> waiting;
    for (size_t i = 0; i < parked_.size(); ++i) {
      const bool waits = said[i].ok() && !said[i]->has_value();
      if (waits && parked_[i].deadline_ns > now_ns) {
        waiting.push_back(std::move(parked_[i]));
      } else {
        ended.emplace_back(std::move(parked_[i].wait), std::move(said[i]));
      }
    }
    parked_ = std::move(waiting);
    Count(-static_cast<int64_t>(ended.size()));
    return ended;
  }

  // Takes all out, to be ended with `status`, as later ones are.
  std::vector<Parked> Close(const absl::Status& status) {
    closed_ = status;
    Count(-static_cast<int64_t>(parked_.size()));
    return std::exchange(parked_, {});
  }
  // OK, or what Close was told.
  const absl::Status& closed() const { return closed_; }

  bool empty() const { return count_ == 0; }

 private:
  static constexpr int64_t kReader = -1;

  // OK when the share of `slot` has room for one wait more, of `bytes`.
  absl::Status CheckShare(int64_t slot, int64_t bytes) const {
    const int64_t most = slot == kReader ? shares_.readers : shares_.per_slot;
    // Spares the count where the place is far from full.
    if (static_cast<int64_t>(parked_.size()) < most && bytes == 0) {
      return absl::OkStatus();
    }
    int64_t waits = 0;
    int64_t held = 0;
    for (const Parked& one : parked_) {
      if (one.slot == slot) {
        ++waits;
        held += one.bytes;
      }
    }
    if (waits < most && held + bytes <= shares_.bytes) {
      return absl::OkStatus();
    }
    std::string whose = "readers";
    if (slot != kReader) {
      whose = absl::StrCat("slot ", slot);
    }
    std::string text = absl::StrCat(what_, ": ", waits, " waits of ", whose,
                                    " are parked already");
    if (waits < most) {
      absl::StrAppend(&text, " and hold ", held, " bytes; with ", bytes,
                      " more they would hold over ", shares_.bytes);
    }
    return absl::ResourceExhaustedError(text);
  }

  void Count(int64_t change) {
    count_ += change;
    total_ += change;
  }

  const ParkingShares shares_;
  const char* const what_;
  std::atomic<int64_t>& total_;
  std::vector<Parked> parked_;
  absl::Status closed_;
  std::atomic<int64_t> count_{0};  // of parked_, for empty()
};

}  // namespace weir

#endif  // SERVER_PS_BLOCK_PARKING_H_
