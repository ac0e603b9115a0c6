// Decides what a client does next to pull rows from one shard, and to push
// their gradients there.
//
// Place: the decisions of TableClient without its I/O; one thread of it asks
// each Next() (exchange.h).
//
// Terms
//   piece  the part of a pull or a push that one message carries
//          (row_pieces.h).
//   list   the ids of one table in a piece. A shard keeps lists by name.
//
// Invariants
//   I1. A pull asks for every piece until its rows are here; rows that came
//       before a stream broke are not asked for again.
//   I2. At most kInFlightMax pieces are asked for ahead, so that the ps gathers
//       one while another travels and a third is decoded here.
//   I3. A push is repeated until its receipt is in. Every try has the same
//       identity, so the shard counts a repeat as a duplicate.
//   I4. A list is sent to a shard once, as long as the shard keeps it; after
//       that only its name is sent.
// Threads: compatible; TableClient serialises.
// Errors: those of Exchange; INTERNAL, an answer that is wrong.
// Cost: O(1) per message and list.
#ifndef CLIENT_CC_PARAMETERS_ROW_EXCHANGE_H_
#define CLIENT_CC_PARAMETERS_ROW_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "client/cc/parameters/exchange.h"
#include "client/cc/parameters/row_pieces.h"
#include "proto/ps.pb.h"

namespace weir {

// The lists that one shard was sent, and is believed to keep.
class KnownLists {
 public:
  // Says in each part of the piece whether its name is enough (I4).
  void MarkKnown(RowPiece* piece) const;
  void Add(const RowPiece& piece);
  void Remove(const RowPiece& piece);
  void Clear() { known_.clear(); }

 private:
  absl::flat_hash_set<std::pair<uint64_t, int>> known_;  // name, table
};

class RowPullExchange : public Exchange {
 public:
  static constexpr int kInFlightMax = 4;

  struct Action : Step {  // kSend: asks for `piece`, by its number
    RowPiece* piece = nullptr;
    uint32_t request = 0;
  };

  RowPullExchange(ConnectionOptions options, std::shared_ptr<KnownLists> lists)
      : Exchange(std::move(options)), lists_(std::move(lists)) {}

  // Asks for the rows of `pieces`. REQUIRES: done().
  void Start(std::vector<RowPiece> pieces);
  // Wants no more rows: answers that still come are ignored.
  void GiveUp();

  Action Next();
  void OnStreamEnd(const absl::Status& status);
  // Takes an answer. Returns the piece whose rows the caller must now decode
  // from the payload and then report by OnStored, or null.
  const RowPiece* OnAnswer(const RowChunk& answer, size_t payload_bytes);
  void OnStored(uint64_t version);

  bool done() const { return left_ == 0; }
  // Whether the caller decodes a piece.
  bool storing() const { return storing_ != nullptr; }
  // The oldest version of all pieces: a gradient is as stale as its stalest
  // row. REQUIRES: done(), and the pull was not given up.
  uint64_t version() const { return version_; }

 private:
  bool HasWork() const override { return left_ > 0; }

  const std::shared_ptr<KnownLists> lists_;
  std::vector<RowPiece> pieces_;
  std::deque<uint32_t> unsent_;
  size_t left_ = 0;    // pieces whose rows are not here
  int in_flight_ = 0;  // pieces asked for, without an answer
  RowPiece* storing_ = nullptr;
  uint64_t version_ = 0;
};

class RowPushExchange : public Exchange {
 public:
  RowPushExchange(ConnectionOptions options, std::shared_ptr<KnownLists> lists)
      : Exchange(std::move(options)), lists_(std::move(lists)) {}

  // Sends the gradients of `pieces`. REQUIRES: done().
  void Start(std::vector<RowPiece> pieces);

  // kSend: send all of pieces(), in one call.
  Step Next();
  void OnReply(const PushRowsReply& reply);
  // The call failed. `silent`: its time was over, and the ps did not say Hello
  // either. An update waits on the ps while a checkpoint writes the tables, for
  // as long as that takes, so a ps that says Hello is not lost.
  void OnCallEnd(const absl::Status& status, bool silent) {
    BrokenCall(status, silent);
  }

  const std::vector<RowPiece>& pieces() const { return pieces_; }
  bool done() const { return done_; }
  const PushRowsReply& reply() const { return reply_; }

 private:
  bool HasWork() const override { return !done_; }
  // A call ends by itself when nothing is heard.
  bool Waits() const override { return false; }

  const std::shared_ptr<KnownLists> lists_;
  std::vector<RowPiece> pieces_;
  bool done_ = true;
  int64_t deferred_until_ns_ = 0;
  PushRowsReply reply_;
};

}  // namespace weir

#endif  // CLIENT_CC_PARAMETERS_ROW_EXCHANGE_H_
