// Decides what a channel does next: send, receive, reconnect or give up.
//
// Place: the decisions of ParameterClient without its I/O. Two threads per
// channel ask Next() what there is for them to do, do it, and report what
// happened.
//
// Terms
//   contribution  what is being pushed; one at a time.
//   want          a question for values of blocks; one set at a time. A want
//                 that goes with the contribution leaves when its block's push
//                 leaves. Values that need not be waited for are asked for in
//                 the push itself, and one answer brings both. Others are asked
//                 for right behind it, since an answer that parks would hold up
//                 the receipt.
//   gate          closed while any shard still owes values: nothing of the next
//                 contribution leaves before the values that it was computed
//                 from are all here.
//   receipt       the shard's word that a block of the contribution is settled.
//
// Invariants
//   I1. A block is sent again, with the same identity, until its receipt is in.
//   I2. Payload without a receipt is at most in_flight_bytes_max, or one block.
//       The same bound holds for values asked for that need not wait for other
//       workers. More in the sockets falls out of the cache
//       (docs/performance.md).
//   I3. Requests without an answer are at most kInFlightRequestsMax, so that
//       the server never stops reading (it does at 256, says proto/ps.proto).
//       Wants, which may park, are asked only while fewer than kWantRequestsMax
//       are open, so that pushes always find room.
//   I4. Among ready blocks the first one goes first: blocks lie in the order in
//       which forward needs them.
//   I5. With the gate open, no block is asked for before its own push has left,
//       except for wants that are to go at once.
//   I6. A push names the version that its block had when the contribution
//       began. The gradient was computed from that version, whatever has come
//       since.
// Threads: compatible; ParameterClient serialises.
// Cost: O(log blocks) per message.
#ifndef CLIENT_CC_PARAMETERS_SHARD_EXCHANGE_H_
#define CLIENT_CC_PARAMETERS_SHARD_EXCHANGE_H_

#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "client/cc/parameters/contribution.h"
#include "client/cc/parameters/exchange.h"
#include "proto/ps.pb.h"

namespace weir {

class ShardExchange : public Exchange {
 public:
  // Half of what makes a server stop reading.
  static constexpr int kInFlightRequestsMax = 128;
  static constexpr int kWantRequestsMax = 96;
  static constexpr int64_t kInFlightBytesMax = 2 << 20;

  struct Options : ConnectionOptions {
    // The channel carries the blocks of the shard from `first_block` on, as
    // many as `elements` has. Everywhere else in this class they count from 0.
    int first_block = 0;
    std::vector<int64_t> elements;  // floats of each block
    int64_t in_flight_bytes_max = kInFlightBytesMax;
  };

  struct Action : Step {  // kSend: `header`, with the gradient if `payload`
    GradientChunk header;
    int block = 0;  // the first one of `header`
    bool payload = false;
  };

  explicit ShardExchange(Options options);

  // --- What the owner wants.

  // Asks for every block. One whose push has not left yet is asked for with it,
  // unless `at_once`. REQUIRES: wants_left() == 0; while a contribution is
  // under way, `sender` is the contribution's.
  void StartWants(const Sender& sender, const Want& want, bool at_once = false);
  // Starts a contribution: every block waits for BlockReady. `push` has all but
  // base_version and left_out. REQUIRES: contribution_done().
  void BeginContribution(const Sender& sender, const Push& push);
  // Asks for every block with its push, or right behind it, for its sender.
  // REQUIRES: wants_left() == 0, and no push has left since BeginContribution
  //           (the gate was closed, or no block was ready).
  void WantWithContribution(const Want& want);
  // Lets the block's push leave: with its gradient, but for the variables
  // `left_out`; or, with `payload` false, as a header that leaves out the whole
  // block. REQUIRES: called once per block and contribution.
  void BlockReady(int block, bool payload, std::vector<uint32_t> left_out);
  void SetGate(bool open) { gate_open_ = open; }

  // --- What happens on the stream.

  // Says what a thread is to do while the other thread sends or receives on the
  // stream, as the arguments say. Either thread must ask again when a send or
  // receive has ended.
  Action Next(bool sending = false, bool receiving = false);
  void OnStreamEnd(const absl::Status& status);
  // Takes an answer. Returns the block whose values the caller must now copy
  // from the payload and then report by OnStored, or OnStoreFailed, or -1.
  int OnAnswer(const ValueChunk& answer, size_t payload_bytes);
  void OnStored(int block, uint64_t version);
  void OnStoreFailed(const absl::Status& status) { FailHere(status); }

  // --- State.

  int wants_left() const { return wants_left_; }
  // Whether answers with values may arrive, or blocks wait for a pause to end.
  // Either is worth a second thread.
  bool wants_in_flight() const { return wanted_bytes_ > 0; }
  bool has_deferred() const { return !deferred_.empty(); }
  int blocks_unsent() const { return blocks_unsent_; }
  bool contribution_done() const { return blocks_unacknowledged_ == 0; }
  // Sums what the receipts of the contribution say.
  const ContributionResult& receipts() const { return receipts_; }

 private:
  enum class PushState : uint8_t { kNone, kPending, kReady, kSent, kDeferred };
  enum class WantState : uint8_t { kNone, kWithPush, kQueued, kSent, kCopying };

  struct Block {
    uint64_t version = 0;       // of the values last stored
    uint64_t base_version = 0;  // that the contribution was computed from
    PushState push = PushState::kNone;
    WantState want = WantState::kNone;
    bool payload = false;
    std::vector<uint32_t> left_out;
    uint32_t push_request = 0;  // keys of requests_
    uint32_t want_request = 0;
  };

  bool HasWork() const override {
    return blocks_open_ > 0 || wants_left_ > wants_with_push_;
  }
  void SetWant(const Sender& sender, const Want& want);
  bool PushMayGo() const;
  bool WantMayGo() const;
  void QueueWant(int block);
  Action SendPush();
  Action SendWant();
  bool WantHasRoom(int block) const;
  void OnReceipt(const ValueChunk& answer);
  void Answered(uint32_t* request);

  const Options options_;
  std::vector<Block> blocks_;
  Sender sender_;  // of the contribution
  Push push_;
  Sender want_sender_;
  Want want_;
  bool gate_open_ = true;
  std::set<int> ready_;         // blocks
  std::set<int> wants_queued_;  // blocks
  std::vector<int> deferred_;
  int64_t deferred_until_ns_ = 0;
  int blocks_unsent_ = 0;  // of the contribution, counting those not ready
  int blocks_unacknowledged_ = 0;  // of the contribution
  int blocks_open_ = 0;            // ready, sent or deferred
  int wants_left_ = 0;
  int wants_with_push_ = 0;  // those of wants_left_ whose push was not sent
  ContributionResult receipts_;

  // Requests without an answer: key -> answers still to come.
  std::unordered_map<uint32_t, int> requests_;
  uint32_t next_request_ = 1;
  int64_t in_flight_bytes_ = 0;               // pushed, without a receipt
  int64_t wanted_bytes_ = 0;                  // asked for, without an answer
  uint64_t skipped_sequence_ = ~uint64_t{0};  // OUT_OF_RANGE seen for it
};

}  // namespace weir

#endif  // CLIENT_CC_PARAMETERS_SHARD_EXCHANGE_H_
