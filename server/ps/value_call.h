// The answering half of Pull and PushPull: wants in, value chunks out.
//
// Place: parameter_service.cc derives its two calls with answers from it.
// What a want waits for is parked in the store; its continuation arrives on
// any thread and the answer is queued here.
//
// Terms
//   question  one request: a list of blocks, what is wanted of each, and the
//             receipt that goes along. Answered by one chunk per block, or by
//             one in all when nothing is wanted.
//   ready     an answer that waits for the one before it to be written.
//   final     the status that ends the call, once the write under way is done.
//
// Invariants
//   I1. At most one write is under way; none starts after Finish.
//   I2. After the client is gone, or after `final` is set, continuations only
//       drop their values.
//   I3. At most kReadyMax answers taken from the store wait for the wire while
//       wants are left, so a pull of a large shard pins few blocks. Parked
//       wants that come true together may exceed it, up to kParkedMax.
// Threads: safe.
// Cost: no copy of f32 values; the block is referenced until the bytes left.
#ifndef SERVER_PS_VALUE_CALL_H_
#define SERVER_PS_VALUE_CALL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/mutex.h"
#include "proto/ps.pb.h"
#include "server/ps/call_queue.h"
#include "server/ps/store.h"

namespace weir {

class ValueCall : public std::enable_shared_from_this<ValueCall> {
 public:
  // 1 MiB blocks: the bytes that are asked for ahead of the wire.
  static constexpr size_t kReadyMax = 4;
  static constexpr size_t kParkedMax = 256;

  virtual ~ValueCall() = default;

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
    bool not_yet_fails = false;  // Pull: a want that ran out ends the call
  };

  ValueCall(Store* store, CallQueue* queue);

  // Answers `question`, now or when its wants hold.
  void Ask(Question question);
  // Answers a request that wants nothing.
  void Acknowledge(uint32_t block, uint32_t block_count,
                   const Receipt& receipt);
  // No question follows: ends the call with OK after the last answer.
  void NoMoreQuestions();
  // Ends the call with `status` as soon as the write under way is done.
  void Fail(const absl::Status& status);
  bool ended() const;

  // Call when the client's call was taken up, on the queue's thread.
  void Begin();

  // One write or finish of the derived call's stream.
  virtual void StartWrite(const grpc::ByteBuffer& buffer, void* tag) = 0;
  virtual void StartFinish(const absl::Status& status, void* tag) = 0;
  // A question's last answer has been written.
  virtual void OnAnswered() {}

  Store* const store_;
  CallQueue* const queue_;
  grpc::ServerContext context_;

 private:
  struct Answer {
    std::shared_ptr<Question> question;
    ValueChunk header;
    BlockRef values;
  };

  void Pump();
  void OnPulled(const std::shared_ptr<Question>& question,
                absl::StatusOr<PulledBlock> pulled);
  void WriteNext();
  void OnWritten(bool ok);
  void OnCallDone();
  bool TakeNextWant(std::shared_ptr<Question>* question, uint32_t* block);
  bool Finished() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::deque<std::shared_ptr<Question>> questions_ ABSL_GUARDED_BY(mutex_);
  std::deque<Answer> ready_ ABSL_GUARDED_BY(mutex_);
  size_t parked_ ABSL_GUARDED_BY(mutex_) = 0;  // asked, not yet pulled
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Question> writing_ ABSL_GUARDED_BY(mutex_);
  bool no_more_questions_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> final_ ABSL_GUARDED_BY(mutex_);
  bool finish_started_ ABSL_GUARDED_BY(mutex_) = false;
  bool client_gone_ ABSL_GUARDED_BY(mutex_) = false;

  CallOperation on_written_;
  CallOperation on_finished_;
  CallOperation on_call_done_;
};

}  // namespace weir

#endif  // SERVER_PS_VALUE_CALL_H_
