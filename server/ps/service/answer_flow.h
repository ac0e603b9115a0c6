// The answering half of a call: requests in, answers out.
//
// Place: between the store and the ways out of a ps: gRPC (grpc_call.h) and
// shared memory (shm_session.h). What a want waits for is parked in the store;
// its continuation arrives on any thread and the answer is queued here.
//
// Terms
//   question   one request for blocks: a list of them, what is wanted of each,
//              and the receipt that goes along. It has one answer a block.
//   expected   an answer that is still to come through Deliver; the flow does
//              not end before it. Answers to questions are counted by the flow
//              itself, any other is announced by Expect or NoMoreQuestions.
//   ready      an answer that waits for its turn to leave.
//   under way  an answer that was handed to Write and not yet reported.
//   final      the status that ends the flow, once nothing is under way.
//
// Invariants
//   I1. At most `window` answers are under way; none starts after Finish.
//   I2. After the client is gone, or after `final` is set, continuations only
//       drop their values.
//   I3. While wants are left, at most kReadyMax answers from the store wait for
//       their turn to leave, so a pull of a large shard pins few blocks. Parked
//       wants that come true together may exceed it, up to kParkedMax.
//   I4. Values leave in the encoding that is wanted, but for those of blocks
//       that hold buffers, which leave as F32: buffers may be counts, whose
//       size would set the scale of the weights beside them (see "Compression"
//       in docs/design_notes.md).
//   I5. A checksum is of the bytes that leave. Values that may still change are
//       copied before it is taken.
// Threads: safe, but for Take, which one thread calls. Write and Finish are
//   called on any thread, without a lock; two Writes at once only when `window`
//   is over 1.
// Cost: float32 values are not copied, but for I5.
#ifndef SERVER_PS_SERVICE_ANSWER_FLOW_H_
#define SERVER_PS_SERVICE_ANSWER_FLOW_H_

#include <google/protobuf/message_lite.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/io/payload.h"
#include "proto/ps.pb.h"
#include "server/ps/memory/arena.h"
#include "server/ps/store/store.h"

namespace weir {

class AnswerFlow : public std::enable_shared_from_this<AnswerFlow> {
 public:
  // In blocks of 1 MiB, this is how much is asked for ahead of the wire.
  static constexpr size_t kReadyMax = 4;
  static constexpr size_t kParkedMax = 256;

  struct Question {
    Sender sender;
    Want want;
    std::optional<Receipt> receipt;
    uint32_t block_count = 0;  // of the request, echoed
    // The blocks wanted: those listed, or [first, first + count).
    std::vector<uint32_t> listed;
    uint32_t first = 0;
    uint64_t count = 0;
    uint64_t asked = 0;          // handed to the store
    uint64_t unwritten = 0;      // answers still to be written
    bool not_yet_fails = false;  // Pull: a want that ran out ends the flow
  };
  struct Answer {
    // Of blocks. Null: the answer is the only one to its request.
    std::shared_ptr<Question> question;
    // Empty: it only says that the request was taken.
    std::variant<std::monostate, ValueChunk, RowChunk,
                 std::unique_ptr<google::protobuf::MessageLite>>
        header;
    BlockRef values = {};     // the payload, in the header's encoding
    size_t bytes = 0;         // of the payload
    bool may_change = false;  // see PulledBlock

    // The header; null if it is empty.
    const google::protobuf::MessageLite* message() const;
  };

  virtual ~AnswerFlow() { --payloads_->open_calls; }

  // Apply one request and answer it. The caller must pass an error to Fail.
  // Every chunk of PushPull and PullRows has an answer. A chunk of PushRows has
  // one if it is the last of its contribution; Take returns whether it is. With
  // `no_more` no question follows that one.
  absl::Status Take(GradientChunk chunk, Payload payload);
  void Take(const PullRowsChunk& request);
  absl::StatusOr<bool> Take(const PushRowsChunk& chunk, const Payload& payload,
                            bool no_more);
  // Answers `question`, now or when its wants hold.
  void Ask(Question question);

  // Sends an answer to a request that was just taken.
  void Add(Answer&& answer);
  // One answer more will come through Deliver.
  void Expect();
  // Sends an answer that was expected.
  void Deliver(Answer&& answer);
  // An error came in place of an answer that was expected; it ends the flow.
  void DeliverError(const absl::Status& status);
  template <typename Reply>
  void DeliverReply(absl::StatusOr<Reply> reply) {
    if (!reply.ok()) {
      DeliverError(reply.status());
      return;
    }
    Deliver(Answer{nullptr, std::make_unique<Reply>(*std::move(reply))});
  }

  // No request follows: ends the flow with OK after the last answer. `expected`
  // answers still come through Deliver.
  void NoMoreQuestions(size_t expected = 0);
  // Ends the flow with `status` as soon as nothing is under way.
  void Fail(const absl::Status& status);
  // No further request is of use.
  bool ended() const;

 protected:
  // Values that are not float32 are encoded into memory of `arena`.
  AnswerFlow(Store* store, Arena* arena, size_t window)
      : store_(store),
        payloads_(store->payloads()),
        arena_(arena),
        window_(window) {
    ++payloads_->open_calls;
  }

  // Drops everything; nothing more is written.
  void ClientGone();

  // Reports that an answer which Write took has left. Not `ok`: the client is
  // gone.
  void OnWritten(const std::shared_ptr<Question>& question, bool ok);

  // Called under the flow's lock before Write or Finish, when the client has
  // not gone; must not call back. `finish`: the flow ends with it.
  virtual void Reserve(bool /*finish*/) {}
  // With `last`, no other answer follows, nor Finish: the flow has ended with
  // OK, and nobody waits for OnWritten.
  virtual void Write(Answer&& answer, bool last) = 0;
  virtual void Finish(const absl::Status& status) = 0;
  // Called when a request's payload has been read, before its answer leaves.
  virtual void OnTaken() {}
  // Called when a request's last answer has been written.
  virtual void OnAnswered() {}

  Store* const store_;
  const std::shared_ptr<PayloadCounters> payloads_;

 private:
  void CountReceived(const Payload& payload);
  // Answers a request that wants nothing.
  void Acknowledge(const GradientChunk& chunk, const Receipt& receipt);
  void Pump();
  void OnPulled(const std::shared_ptr<Question>& question,
                absl::StatusOr<PulledBlock> pulled);
  void Encode(Answer* answer) const;
  std::optional<Answer> TakeReady();
  void WriteReady();
  bool TakeNextWant(std::shared_ptr<Question>* question, uint32_t* block);
  void Drop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Finished() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Arena* const arena_;
  const size_t window_;
  mutable Mutex mutex_;
  std::deque<std::shared_ptr<Question>> questions_ ABSL_GUARDED_BY(mutex_);
  std::deque<Answer> ready_ ABSL_GUARDED_BY(mutex_);
  size_t parked_ ABSL_GUARDED_BY(mutex_) = 0;  // asked or expected
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  size_t under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  bool no_more_questions_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> final_ ABSL_GUARDED_BY(mutex_);
  bool finish_started_ ABSL_GUARDED_BY(mutex_) = false;
  bool client_gone_ ABSL_GUARDED_BY(mutex_) = false;
  // The contribution of rows that is coming in. The thread that Takes alone
  // uses it.
  std::shared_ptr<RowPush> row_push_;
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_ANSWER_FLOW_H_
