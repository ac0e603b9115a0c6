// A gRPC call that is answered by a stream of values: Pull and PushPull.
//
// Place: gives AnswerFlow a gRPC stream to write to; parameter_service.cc
// derives its two calls from it.
//
// Threads: safe.
// Cost: f32 values are not copied; the block is referenced until the bytes have
//   left.
#ifndef SERVER_PS_SERVICE_VALUE_CALL_H_
#define SERVER_PS_SERVICE_VALUE_CALL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>

#include "absl/status/status.h"
#include "server/ps/service/answer_flow.h"
#include "server/ps/service/call_queue.h"
#include "server/ps/store/store.h"

namespace weir {

class ValueCall : public AnswerFlow {
 protected:
  ValueCall(Store* store, CallQueue* queue);

  // Call when the client's call was taken up, on the queue's thread.
  void Begin();

  // One write or finish of the derived call's stream.
  virtual void StartWrite(const grpc::ByteBuffer& buffer, void* tag) = 0;
  virtual void StartFinish(const absl::Status& status, void* tag) = 0;

  CallQueue* const queue_;
  grpc::ServerContext context_;

 private:
  void Reserve(bool finish) override;
  void Write(Answer answer) override;
  void Finish(const absl::Status& status) override;
  void OnWritten(bool ok);
  void OnCallDone();

  // The tag of the write or finish under way; there is one at most.
  void* tag_ = nullptr;
  std::shared_ptr<Question> writing_;

  CallOperation on_written_;
  CallOperation on_finished_;
  CallOperation on_call_done_;
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_VALUE_CALL_H_
