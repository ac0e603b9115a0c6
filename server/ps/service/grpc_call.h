// A call of gRPC, of any method: raw messages both ways.
//
// Place: parameter_service.cc says what each method does with its messages, and
// proto/security/access_control.h who may call it.
// gRPC need not know which methods are streams: on the wire a call with one
// request is a stream of one message, so all are served as streams.
//
// Invariants
//   I1. At most kUnansweredMax requests of a call have no answer; over it the
//       stream is not read, and HTTP/2's window holds the client back. The
//       parts of one request are taken as they come.
//   I2. Nothing of a call is read before its caller was admitted.
// Threads: handlers run on the queue's thread, answers come from any.
// Cost: a payload is lent to gRPC until its bytes have left.
#ifndef SERVER_PS_SERVICE_GRPC_CALL_H_
#define SERVER_PS_SERVICE_GRPC_CALL_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/security/access_control.h"
#include "server/ps/service/answer_flow.h"
#include "server/ps/service/call_queue.h"
#include "server/ps/store/store.h"

namespace weir {

class GrpcCall : public AnswerFlow {
 public:
  static constexpr int kUnansweredMax = 256;

  // What a method does in one call. An error ends the call.
  struct Handler {
    // Takes one message of the client.
    std::function<absl::Status(const grpc::ByteBuffer&)> message;
    // The client has sent all, or is gone. Empty: NoMoreQuestions.
    std::function<absl::Status()> end = nullptr;
    // False: the messages are parts of one request, answered at its end, so
    // none of them waits for an answer of its own (I1).
    bool each_answered = true;
  };
  // By name, "/weir.ParameterServer/Hello". A handler may use its call, which
  // outlives it.
  using Methods = std::map<std::string, std::function<Handler(GrpcCall*)>>;

  // What all calls of a server share. Borrowed.
  struct Host {
    grpc::AsyncGenericService* service = nullptr;
    const Methods* methods = nullptr;
    Store* store = nullptr;
    AccessControl* access = nullptr;
  };

  // Takes up calls from now on. Borrows `host`, and `queue` but for its calls.
  static void Listen(const Host* host, CallQueue* queue);

  GrpcCall(const Host* host, CallQueue* queue);

  // Who makes the call. REQUIRES: a handler asks.
  const Caller& caller() const { return caller_; }

  // Calls `after` with what the call ended with, when it is over: its last
  // answer has left, or nobody waits for it any more (CANCELLED). On the
  // queue's thread.
  void WhenOver(std::function<void(const absl::Status&)> after) {
    after_ = std::move(after);
  }

 private:
  void OnCall(bool ok);
  // Admits the caller and begins to read, or says why not.
  absl::Status Begin();
  void Read();
  void OnRead(bool ok);
  void ReadMore();
  void Reserve(bool finish) override;
  void Write(Answer&& answer, bool last) override;
  void Finish(const absl::Status& status) override;
  void OnAnswered() override;
  void OnCallDone();
  void Over(const absl::Status& status);

  const Host* const host_;
  CallQueue* const queue_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_;

  // The queue's thread alone uses these.
  Caller caller_;
  Handler handler_;
  bool heard_ = false;  // a message has come
  grpc::ByteBuffer buffer_;
  bool reading_ = false;
  int unanswered_ = 0;
  std::function<void(const absl::Status&)> after_;

  // The tag of the write or finish under way; there is one at most.
  void* tag_ = nullptr;
  std::shared_ptr<Question> writing_;
  absl::Status outcome_;  // of Finish

  CallOperation on_call_;
  CallOperation on_read_;
  CallOperation on_written_;
  CallOperation on_finished_;
  CallOperation on_call_done_;
};

}  // namespace weir

#endif  // SERVER_PS_SERVICE_GRPC_CALL_H_
