#include "server/chief/chief_service.h"

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/exhausted.h"
#include "common/base/limits.h"
#include "common/base/mutex.h"
#include "common/base/printable.h"
#include "proto/wire/grpc_status.h"
#include "proto/wire/wire_version.h"

namespace weir {
namespace {

// What a worker tells for people to read goes into logs and errors.
void MakePrintable(Progress* progress) {
  progress->set_error(Printable(progress->error(), kPeerMessageBytesMax));
  for (ContributionReport& report : *progress->mutable_report()) {
    if (!report.bad_variable().empty()) {
      report.set_bad_variable(Printable(report.bad_variable()));
    }
  }
}

// One Heartbeat call. gRPC allows one write at a time and no write after
// Finish, and may report a read before the write that it answers is done.
class HeartbeatCall : public grpc::ServerBidiReactor<Progress, Command>,
                      public HeartbeatSink {
 public:
  static HeartbeatCall* Open(ChiefRunner* runner) {
    auto call = std::make_shared<HeartbeatCall>(runner);
    call->self_ = call;  // gRPC uses it until OnDone
    call->stream_ = runner->OpenStream(call);
    call->StartRead(&call->progress_);
    return call.get();
  }

  explicit HeartbeatCall(ChiefRunner* runner) : runner_(runner) {}

  void Send(const Command& command) override {
    MutexLock lock(&mutex_);
    if (!end_.has_value()) {
      queue_.push_back(command);
      WriteNext();
    }
  }

  void End(const absl::Status& status) override {
    MutexLock lock(&mutex_);
    if (!end_.has_value()) {
      end_ = status;
      WriteNext();
    }
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      MakePrintable(&progress_);
      // The next message is read when this one was taken, so that a worker
      // which sends faster than the chief decides waits in its own memory.
      runner_->OnProgress(stream_, progress_,
                          [self = self_] { self->ReadNext(); });
      return;
    }
    // The worker has closed its side or is gone. gRPC calls OnDone only after
    // Finish, which End leads to.
    runner_->OnStreamLost(stream_);
    End(absl::OkStatus());
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mutex_);
    writing_ = false;
    queue_.pop_front();
    if (!ok) {
      queue_.clear();  // the stream is broken; only Finish may follow
    }
    WriteNext();
  }

  void OnDone() override {
    // The runner may still hold a share, so `this` lives on with that.
    const std::shared_ptr<HeartbeatCall> last = std::move(self_);
  }

 private:
  // The lock is held while the read begins, as WriteNext holds it: no operation
  // may begin behind Finish.
  void ReadNext() {
    MutexLock lock(&mutex_);
    if (!finished_) {
      StartRead(&progress_);
    }
  }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) {
      return;
    }
    // What was sent before End goes out first: a Stop before the end of its
    // stream, for instance.
    if (!queue_.empty()) {
      writing_ = true;
      StartWrite(&queue_.front());
    } else if (end_.has_value()) {
      finished_ = true;
      Finish(ToGrpcStatus(*end_));
    }
  }

  ChiefRunner* const runner_;
  uint64_t stream_ = 0;  // constant after Open
  Progress progress_;    // of the read under way
  std::shared_ptr<HeartbeatCall> self_;

  Mutex mutex_;
  std::deque<Command> queue_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

// A Heartbeat call that was refused, or came before the chief had begun.
class RefusedCall : public grpc::ServerBidiReactor<Progress, Command> {
 public:
  explicit RefusedCall(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

grpc::Status Starting() {
  return ToGrpcStatus(absl::UnavailableError("the chief is starting"));
}

// Admits the caller and runs `call` with it, with the runner and with what ends
// the call. `call` may keep that and return: the answer may come on another
// thread.
template <typename Call>
grpc::ServerUnaryReactor* Unary(const char* method,
                                grpc::CallbackServerContext* context,
                                AccessControl* access, ChiefRunner* runner,
                                Call call) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<Caller> caller = access->Admit(method, *context);  // I1
  if (!caller.ok()) {
    reactor->Finish(ToGrpcStatus(caller.status()));
    return reactor;
  }
  if (runner == nullptr) {
    reactor->Finish(Starting());
    return reactor;
  }
  call(*caller, runner, [reactor](const absl::Status& status) {
    reactor->Finish(ToGrpcStatus(status));
  });
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* ChiefService::Register(
    grpc::CallbackServerContext* context, const RegisterRequest* request,
    RegisterReply* reply) {
  return Unary(
      "/weir.Chief/Register", context, access_, runner_,
      [=, this](const Caller& caller, ChiefRunner* runner, auto finish) {
        const absl::Status rank = runner->CheckRank(caller.identity, *request);
        if (!rank.ok()) {
          access_->RecordRefusal(caller, "/weir.Chief/Register", rank);
          finish(rank);
          return;
        }
        RegisterRequest known = *request;
        known.set_host(Printable(request->host()));
        // Before anything else of the request is used: another version may mean
        // something else by its fields.
        const absl::Status same = CheckWireVersion(
            absl::StrCat("worker ", known.rank(), " (", known.host(), ")"),
            known.wire_version());
        if (!same.ok()) {
          finish(same);
          return;
        }
        // The answer comes on the decision thread; no thread of gRPC waits for
        // it.
        runner->Register(
            known, [=, this](const absl::StatusOr<RegisterReply>& answer) {
              // A worker that waits asks again and again.
              if (!answer.ok() || answer->has_grant()) {
                access_->Record(caller, "/weir.Chief/Register",
                                answer.status());
              }
              if (answer.ok()) {
                *reply = *answer;
                reply->set_wire_version(kWireVersion);
              }
              finish(answer.status());
            });
      });
}

grpc::ServerBidiReactor<Progress, Command>* ChiefService::Heartbeat(
    grpc::CallbackServerContext* context) {
  const auto caller = access_->Admit("/weir.Chief/Heartbeat", *context);  // I1
  if (!caller.ok()) {
    return new RefusedCall(ToGrpcStatus(caller.status()));
  }
  ChiefRunner* const runner = runner_;
  if (runner == nullptr) {
    return new RefusedCall(Starting());
  }
  return HeartbeatCall::Open(runner);
}

grpc::ServerUnaryReactor* ChiefService::GetStatus(
    grpc::CallbackServerContext* context, const ChiefStatusRequest*,
    ChiefStatus* reply) {
  return Unary(
      "/weir.Chief/GetStatus", context, access_, runner_,
      [=](const Caller&, ChiefRunner* runner, auto finish) {
        runner->GetStatus([=](const absl::StatusOr<ChiefStatus>& status) {
          if (status.ok()) {
            *reply = *status;
          }
          finish(status.status());
        });
      });
}

grpc::ServerUnaryReactor* ChiefService::GetReport(
    grpc::CallbackServerContext* context, const ReportRequest*,
    JobReport* reply) {
  return Unary(
      "/weir.Chief/GetReport", context, access_, runner_,
      [=](const Caller&, ChiefRunner* runner, auto finish) {
        runner->GetReport(
            [=](const absl::StatusOr<ChiefRunner::SharedReport>& report) {
              if (report.ok()) {
                *reply = **report;
              }
              finish(report.status());
            });
      });
}

grpc::ServerUnaryReactor* ChiefService::Trace(
    grpc::CallbackServerContext* context, const TraceRequest* request,
    TraceReply* reply) {
  constexpr char kMethod[] = "/weir.Chief/Trace";
  return Unary(
      kMethod, context, access_, runner_,
      [=, this](const Caller& caller, ChiefRunner* runner, auto finish) {
        absl::StatusOr<TraceReply> answer =
            OrExhausted([&] { return traces_->Answer(*request); });
        absl::Status status = answer.status();
        if (status.ok()) {
          *reply = *std::move(answer);
        }
        if (request->start_ms() > 0) {
          access_->Record(caller, kMethod, status);
        }
        if (status.ok() && request->start_ms() > 0) {
          status = runner->SendToAll(
              [traces = traces_, request = *request](size_t workers) {
                Command command;
                *command.mutable_trace() = traces->OrderFor(request, workers);
                return command;
              });
        }
        finish(status);
      });
}

grpc::ServerUnaryReactor* ChiefService::PutTrace(
    grpc::CallbackServerContext* context, const PutTraceRequest* request,
    PutTraceReply* reply) {
  return Unary("/weir.Chief/PutTrace", context, access_, runner_,
               [=, this](const Caller& caller, ChiefRunner*, auto finish) {
                 // Who calls is proven, if anything is; not what it says.
                 uint32_t rank = request->rank();
                 if (caller.identity && caller.identity->index) {
                   rank = static_cast<uint32_t>(*caller.identity->index);
                 }
                 absl::StatusOr<PutTraceReply> answer =
                     OrExhausted([&] { return traces_->Put(*request, rank); });
                 if (answer.ok()) {
                   *reply = *answer;
                 }
                 finish(answer.status());
               });
}

}  // namespace weir
