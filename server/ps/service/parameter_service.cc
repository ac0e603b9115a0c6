#include "server/ps/service/parameter_service.h"

#include <grpcpp/generic/async_generic_service.h>

#include <memory>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "proto/ps.pb.h"
#include "proto/wire/chunk_codec.h"
#include "proto/wire/wire_version.h"
#include "server/ps/service/grpc_call.h"
#include "server/ps/store/work_thread.h"

namespace weir {
namespace {

using grpc::ByteBuffer;

// What Assign has taken so far.
struct Assigned {
  GrpcCall* call = nullptr;
  Store* store = nullptr;
  AssignReply reply = {};

  absl::Status Take(const ByteBuffer& buffer) {
    AssignChunk chunk;
    Payload payload;
    WEIR_RETURN_IF_ERROR(DecodeChunk(buffer, &chunk, &payload));
    WEIR_RETURN_IF_ERROR(store->Assign(chunk, payload));
    reply.set_elements(reply.elements() + payload.bytes() / sizeof(float));
    return absl::OkStatus();
  }
  absl::Status End() {
    call->NoMoreQuestions(/*expected=*/1);
    call->DeliverReply<AssignReply>(reply);
    return absl::OkStatus();
  }
};

template <typename Reply>
absl::StatusOr<Reply> Empty(const absl::Status& status) {
  if (!status.ok()) {
    return status;
  }
  return Reply();
}

template <typename Reply>
void LogAndDeliver(absl::StatusOr<Reply> reply, AnswerFlow* flow) {
  if (!reply.ok()) {
    LOG_WARN("{}", reply.status().ToString());
  }
  flow->DeliverReply(std::move(reply));
}

}  // namespace

class ParameterService::Impl {
 public:
  Impl(Store* store, std::function<void(const absl::Status&)> on_shutdown)
      : store_(store), on_shutdown_(std::move(on_shutdown)) {
    AddStreams();
    AddControl();
  }

  void set_shm_name(const std::string& name) { shm_name_ = name; }
  void set_leaving(Leaving* leaving) { leaving_ = leaving; }
  grpc::AsyncGenericService* service() { return &service_; }

  void TakeCalls(CallQueue* queue) {
    GrpcCall::Listen(&service_, &methods_, store_, queue);
  }

 private:
  using Handler = GrpcCall::Handler;

  void Add(const std::string& name, std::function<Handler(GrpcCall*)> method) {
    methods_[absl::StrCat("/weir.ParameterServer/", name)] = std::move(method);
  }

  void AddStreams() {
    Add("PushPull", [](GrpcCall* call) {
      return Handler{[call](const ByteBuffer& buffer) -> absl::Status {
        GradientChunk chunk;
        Payload payload;
        WEIR_RETURN_IF_ERROR(DecodeChunk(buffer, &chunk, &payload));
        return call->Take(std::move(chunk), std::move(payload));
      }};
    });
    Add("Pull", [this](GrpcCall* call) {
      return Handler{[this, call](const ByteBuffer& buffer) {
        return Pull(buffer, call);
      }};
    });
    Add("PullRows", [](GrpcCall* call) {
      return Handler{[call](const ByteBuffer& buffer) -> absl::Status {
        PullRowsChunk request;
        WEIR_RETURN_IF_ERROR(DecodeMessage(buffer, &request));
        call->Take(request);
        return absl::OkStatus();
      }};
    });
    Add("PushRows", [](GrpcCall* call) {
      return Handler{
          [call](const ByteBuffer& buffer) -> absl::Status {
            PushRowsChunk chunk;
            Payload payload;
            WEIR_RETURN_IF_ERROR(DecodeChunk(buffer, &chunk, &payload));
            return call->Take(chunk, payload, /*no_more=*/true).status();
          },
          [] {
            return absl::InvalidArgumentError(
                "the stream ended before the update's last chunk");
          }};
    });
    Add("Assign", [this](GrpcCall* call) {
      auto assigned = std::make_shared<Assigned>(Assigned{call, store_});
      return Handler{[assigned](const ByteBuffer& buffer) {
                       return assigned->Take(buffer);
                     },
                     [assigned] { return assigned->End(); }};
    });
    Add("Snapshot", [this](GrpcCall* call) {
      return Handler{[this, call](const ByteBuffer& buffer) {
        return Snapshot(buffer, call);
      }};
    });
  }

  absl::Status Pull(const ByteBuffer& buffer, GrpcCall* call) {
    PullRequest request;
    WEIR_RETURN_IF_ERROR(DecodeMessage(buffer, &request));
    WEIR_ASSIGN_OR_RETURN(const int blocks,
                          store_->BlockCount(request.sender()));
    AnswerFlow::Question question;
    question.sender = std::move(*request.mutable_sender());
    question.want = std::move(*request.mutable_want());
    question.listed.assign(request.block().begin(), request.block().end());
    question.count = question.listed.size();
    if (question.listed.empty()) {  // asks for the whole shard
      question.count = static_cast<uint64_t>(blocks);
    }
    // A Pull has no way to say "not yet" about one block and go on.
    question.not_yet_fails = true;
    call->Ask(std::move(question));
    call->NoMoreQuestions();
    return absl::OkStatus();
  }

  absl::Status Snapshot(const ByteBuffer& buffer, GrpcCall* call) {
    SnapshotRequest request;
    WEIR_RETURN_IF_ERROR(DecodeMessage(buffer, &request));
    call->NoMoreQuestions(/*expected=*/2);  // FROZEN, WRITTEN
    store_->Snapshot(
        request,
        [flow = call->shared_from_this()](absl::StatusOr<SnapshotReply> reply) {
          flow->DeliverReply(std::move(reply));
        },
        [this](std::function<void()> write) { writes_.Run(std::move(write)); });
    return absl::OkStatus();
  }

  void AddControl() {
    Unary<HelloRequest>("Hello", [this](const HelloRequest& request) {
      return Hello(request);
    });
    // Hot ids are found by looking at every row.
    Unary<GetStatusRequest>(
        "GetStatus",
        [this](const GetStatusRequest& request) -> absl::StatusOr<PsStatus> {
          return store_->GetStatus(static_cast<int>(request.hot_ids()));
        },
        [this](const GetStatusRequest& request) -> WorkThread* {
          return request.hot_ids() > 0 ? &reports_ : nullptr;
        });
    // On the queue's thread: it takes locks for as long as one block's
    // arithmetic, and a worker waits for it to begin.
    Unary<SetSlotsRequest>("SetSlots", [this](const SetSlotsRequest& request) {
      return Empty<SetSlotsReply>(store_->SetSlots(request));
    });
    // I1. Declare and Restore fill or read gigabytes.
    const auto work = [this](const auto&) { return &work_; };
    Unary<DeclareRequest>(
        "Declare",
        [this](const DeclareRequest& request) {
          return store_->Declare(request);
        },
        work);
    Unary<RestoreRequest>(
        "Restore",
        [this](const RestoreRequest& request) {
          return store_->Restore(request);
        },
        work);
    Unary<ShrinkRequest>(
        "Shrink",
        [this](const ShrinkRequest& request) {
          return store_->Shrink(request);
        },
        [this](const ShrinkRequest&) { return &writes_; });
    Add("Shutdown", [this](GrpcCall* call) {
      return Handler{[this, call](const ByteBuffer& buffer) {
        return Shutdown(buffer, call);
      }};
    });
  }

  // A method with one request and one reply. `thread_for` says which thread
  // answers a request; null: the queue's.
  template <typename Request, typename Answer>
  void Unary(const std::string& name, Answer answer,
             std::type_identity_t<std::function<WorkThread*(const Request&)>>
                 thread_for = nullptr) {
    Add(name, [answer = std::move(answer),
               thread_for = std::move(thread_for)](GrpcCall* call) {
      return Handler{
          [answer, thread_for, call](const ByteBuffer& buffer) -> absl::Status {
            Request request;
            WEIR_RETURN_IF_ERROR(DecodeMessage(buffer, &request));
            call->NoMoreQuestions(/*expected=*/1);
            WorkThread* thread = nullptr;
            if (thread_for) {
              thread = thread_for(request);
            }
            if (thread == nullptr) {
              LogAndDeliver(answer(request), call);
              return absl::OkStatus();
            }
            thread->Run([answer, request = std::move(request),
                         flow = call->shared_from_this()] {
              LogAndDeliver(answer(request), flow.get());
            });
            return absl::OkStatus();
          }};
    });
  }

  absl::StatusOr<HelloReply> Hello(const HelloRequest& request) {
    WEIR_RETURN_IF_ERROR(
        CheckWireVersion("the caller", request.wire_version()));
    HelloReply reply = store_->Hello();
    reply.set_wire_version(kWireVersion);
    reply.set_shm_name(shm_name_);
    if (leaving_ != nullptr) {
      if (request.chief()) {
        leaving_->OnChief();
      }
      reply.set_leaving(leaving_->begun());
    }
    return reply;
  }

  // The process ends after the reply has left, so that the chief hears that it
  // was heard.
  absl::Status Shutdown(const ByteBuffer& buffer, GrpcCall* call) {
    ShutdownRequest request;
    WEIR_RETURN_IF_ERROR(DecodeMessage(buffer, &request));
    const absl::Status status = store_->CheckShutdown(request);
    if (status.ok()) {
      call->WhenOver([this, why = absl::Status(
                                static_cast<absl::StatusCode>(request.code()),
                                request.reason())] { on_shutdown_(why); });
    }
    call->NoMoreQuestions(/*expected=*/1);
    LogAndDeliver(Empty<ShutdownReply>(status), call);
    return absl::OkStatus();
  }

  Store* const store_;
  const std::function<void(const absl::Status&)> on_shutdown_;
  grpc::AsyncGenericService service_;
  GrpcCall::Methods methods_;
  std::string shm_name_;
  Leaving* leaving_ = nullptr;
  WorkThread work_;     // Declare and Restore
  WorkThread writes_;   // snapshots' files, and Shrink, never beside them
  WorkThread reports_;  // a report waits for no file, and no file for it
};

ParameterService::ParameterService(
    Store* store, std::function<void(const absl::Status&)> on_shutdown)
    : impl_(std::make_unique<Impl>(store, std::move(on_shutdown))) {}

ParameterService::~ParameterService() = default;

grpc::AsyncGenericService* ParameterService::service() {
  return impl_->service();
}

void ParameterService::OfferSharedMemory(const std::string& name) {
  impl_->set_shm_name(name);
}

void ParameterService::TellLeaving(Leaving* leaving) {
  impl_->set_leaving(leaving);
}

void ParameterService::TakeCalls(CallQueue* queue) { impl_->TakeCalls(queue); }

}  // namespace weir
