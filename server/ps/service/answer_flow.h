// The answering half of Pull and PushPull: requests in, value chunks out.
//
// Place: between the store and the ways that answers leave: gRPC
// (value_call.h), shared memory (shm_session.h). What a want waits for is
// parked in the store; its continuation arrives on any thread and the answer is
// queued here.
//
// Terms
//   question   one request: a list of blocks, what is wanted of each, and the
//              receipt that goes along. Answered by one chunk per block, or by
//              one in all when nothing is wanted.
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
// Threads: safe. Write and Finish are called on any thread, without a lock; two
//   Writes at once only when `window` is over 1.
#ifndef SERVER_PS_SERVICE_ANSWER_FLOW_H_
#define SERVER_PS_SERVICE_ANSWER_FLOW_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/io/payload.h"
#include "proto/ps.pb.h"
#include "server/ps/store/store.h"

namespace weir {

class AnswerFlow : public std::enable_shared_from_this<AnswerFlow> {
 public:
  // In blocks of 1 MiB, this is how much is asked for ahead of the wire.
  static constexpr size_t kReadyMax = 4;
  static constexpr size_t kParkedMax = 256;

  virtual ~AnswerFlow() = default;

 protected:
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
    std::shared_ptr<Question> question;
    ValueChunk header;
    BlockRef values;  // f32, whatever the header's encoding
  };

  AnswerFlow(Store* store, size_t window) : store_(store), window_(window) {}

  // Applies and answers one request of PushPull. The caller must pass an error
  // to Fail.
  absl::Status Take(GradientChunk chunk, Payload payload);
  // Answers `question`, now or when its wants hold.
  void Ask(Question question);
  // No question follows: ends the flow with OK after the last answer.
  void NoMoreQuestions();
  // Ends the flow with `status` as soon as nothing is under way.
  void Fail(const absl::Status& status);
  // Drops everything; nothing more is written.
  void ClientGone();
  bool ended() const;

  // Reports that an answer which Write took has left. Not `ok`: the client is
  // gone.
  void OnWritten(const std::shared_ptr<Question>& question, bool ok);

  // Called under the flow's lock before Write or Finish, when the client has
  // not gone; must not call back.
  virtual void Reserve(bool /*finish*/) {}
  virtual void Write(Answer answer) = 0;
  virtual void Finish(const absl::Status& status) = 0;
  // Called when a request's payload has been read, before its answer leaves.
  virtual void OnTaken() {}
  // Called when a question's last answer has been written.
  virtual void OnAnswered() {}

  Store* const store_;

 private:
  // Answers a request that wants nothing.
  void Acknowledge(const GradientChunk& chunk, const Receipt& receipt);
  void Pump();
  void OnPulled(const std::shared_ptr<Question>& question,
                absl::StatusOr<PulledBlock> pulled);
  void WriteReady();
  bool TakeNextWant(std::shared_ptr<Question>* question, uint32_t* block);
  void Drop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Finished() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t window_;
  mutable Mutex mutex_;
  std::deque<std::shared_ptr<Question>> questions_ ABSL_GUARDED_BY(mutex_);
  std::deque<Answer> ready_ ABSL_GUARDED_BY(mutex_);
  size_t parked_ ABSL_GUARDED_BY(mutex_) = 0;  // asked, not yet pulled
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  size_t under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  bool no_more_questions_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> final_ ABSL_GUARDED_BY(mutex_);
  bool finish_started_ ABSL_GUARDED_BY(mutex_) = false;
  bool client_gone_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_ANSWER_FLOW_H_
