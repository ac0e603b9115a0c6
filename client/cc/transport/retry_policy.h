// Decides what a failed try means for its caller: repeat it, when, or give up.
//
// Place: everything that calls a ps or the chief again asks it: the exchanges
// of blocks and of rows, ChiefClient, the SDK's start, and the chief's calls.
// The codes are those of "Status codes are instructions" in
// docs/architecture.md; InstructionOf is that table.
//
// Invariants
//   I1. What one caller repeats, every caller repeats: no caller has codes of
//       its own, with two exceptions. DATA_LOSS ends a call of the chief, to
//       which it says that a checkpoint is damaged and not a message.
//       RESOURCE_EXHAUSTED ends DeclareShard: a ps without room for a shard
//       gets none by waiting.
//   I2. Pauses double from kBackoffMin to kBackoffMax, and begin anew with the
//       first answer. Both are less where lost_after is short, so that a peer
//       is asked several times before it counts as lost.
// Threads: compatible.
#ifndef CLIENT_CC_TRANSPORT_RETRY_POLICY_H_
#define CLIENT_CC_TRANSPORT_RETRY_POLICY_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace weir {

enum class Instruction {
  kRepeat,      // back off, then the same identity again
  kSendAgain,   // a payload was damaged and nothing of it was taken
  kResendOnce,  // a sequence number was skipped: the part without a receipt
  kEnd,         // no repeat mends it
};
Instruction InstructionOf(absl::StatusCode code);

class RetryPolicy {
 public:
  static constexpr std::chrono::milliseconds kBackoffMin{50};
  static constexpr std::chrono::milliseconds kBackoffMax{1000};
  // After so many tries in a row that ended with a damaged payload, the
  // connection counts as useless.
  static constexpr int kDamagedMax = 5;

  explicit RetryPolicy(std::chrono::milliseconds lost_after);

  // The peer answered: counts and pauses begin anew.
  void OnAnswer();
  // Notes that a try has failed. Returns true if it is to be repeated after
  // pause().
  bool MayRepeat(const absl::Status& status, int64_t now_ns);
  // Whether tries fail since lost_after. For callers without a PeerWatch.
  bool lost(int64_t now_ns) const;
  std::chrono::milliseconds pause() const { return pause_; }
  // Why the newest try failed; OK after an answer.
  const absl::Status& last_error() const { return last_error_; }

 private:
  const std::chrono::milliseconds lost_after_;
  const std::chrono::milliseconds pause_max_;
  const std::chrono::milliseconds pause_min_;
  std::chrono::milliseconds pause_{0};
  int64_t since_ns_ = 0;  // of the first failure; counts while pause_ is set
  int damaged_ = 0;       // tries in a row
  absl::Status last_error_;
};

// The error with which this task ends. OUT_OF_RANGE (a sequence number was
// skipped) and DATA_LOSS (payloads arrive damaged) become FAILED_PRECONDITION:
// a new process of this task can mend both, while their own codes would end
// the whole job. Other errors stay as they are.
absl::Status ForThisTask(const absl::Status& status);

// "unreachable for 10 s"
std::string UnreachableFor(std::chrono::nanoseconds lost_after);
// FAILED_PRECONDITION: "<reason>: <last error>", without the colon if that is
// OK.
absl::Status LostError(std::string reason, const absl::Status& last_error);
// `status` with the number and address of its ps: "ps 1 (host:7) <message>".
// A transport's messages name the address, which then stands there once.
absl::Status NamedPs(int ps, const std::string& address,
                     const absl::Status& status);

}  // namespace weir

#endif  // CLIENT_CC_TRANSPORT_RETRY_POLICY_H_
