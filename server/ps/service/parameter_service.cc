#include "server/ps/service/parameter_service.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/exhausted.h"
#include "common/base/limits.h"
#include "common/base/logging.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "proto/wire/chunk_codec.h"
#include "proto/wire/health_check.h"
#include "proto/wire/measures.h"
#include "proto/wire/wire_version.h"

namespace weir {
namespace {

using grpc::ByteBuffer;
using Handler = GrpcCall::Handler;

// As the wire names it. A method of another service is named in full already.
std::string MethodName(const std::string& name) {
  if (name.front() == '/') {
    return name;
  }
  return absl::StrCat("/weir.ParameterServer/", name);
}

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

ParameterService::ParameterService(
    Store* store, AccessControl* access,
    std::function<void(const absl::Status&)> on_shutdown)
    : store_(store), access_(access), on_shutdown_(std::move(on_shutdown)) {
  host_ = {.service = &service_,
           .methods = &methods_,
           .store = store,
           .access = access};
  AddStreams();
  AddControl();
}

void ParameterService::Add(const std::string& name,
                           std::function<Handler(GrpcCall*)> method) {
  methods_[MethodName(name)] = std::move(method);
}

void ParameterService::AddStreams() {
  Add("PushPull", [](GrpcCall* call) {
    return Handler{[call](const ByteBuffer& buffer) -> absl::Status {
      GradientChunk chunk;
      Payload payload;
      WEIR_RETURN_IF_ERROR(DecodeChunk(buffer, &chunk, &payload));
      return call->Take(std::move(chunk), std::move(payload));
    }};
  });
  Add("Pull", [this](GrpcCall* call) {
    return Handler{
        [this, call](const ByteBuffer& buffer) { return Pull(buffer, call); }};
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
        },
        /*each_answered=*/false};
  });
  Add("Assign", [this](GrpcCall* call) {
    auto reply = std::make_shared<AssignReply>();  // of what came so far
    call->WhenOver([this, call, reply](const absl::Status& status) {
      access_->Record(call->caller(), MethodName("Assign"), status,
                      absl::StrCat(reply->elements(), " elements"));
    });
    return Handler{
        [this, reply](const ByteBuffer& buffer) -> absl::Status {
          AssignChunk chunk;
          Payload payload;
          WEIR_RETURN_IF_ERROR(DecodeChunk(buffer, &chunk, &payload));
          WEIR_RETURN_IF_ERROR(store_->Assign(chunk, payload));
          reply->set_elements(reply->elements() +
                              payload.bytes() / sizeof(float));
          return absl::OkStatus();
        },
        [call, reply] {
          call->NoMoreQuestions(/*expected=*/1);
          call->DeliverReply<AssignReply>(*reply);
          return absl::OkStatus();
        },
        /*each_answered=*/false};
  });
  Add("Snapshot", [this](GrpcCall* call) {
    return Handler{[this, call](const ByteBuffer& buffer) {
      return Snapshot(buffer, call);
    }};
  });
}

absl::Status ParameterService::Pull(const ByteBuffer& buffer, GrpcCall* call) {
  PullRequest request;
  WEIR_RETURN_IF_ERROR(DecodeMessage(buffer, &request));
  WEIR_ASSIGN_OR_RETURN(const int blocks, store_->BlockCount(request.sender()));
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

absl::Status ParameterService::Snapshot(const ByteBuffer& buffer,
                                        GrpcCall* call) {
  SnapshotRequest request;
  WEIR_RETURN_IF_ERROR(DecodeMessage(buffer, &request));
  call->WhenOver([this, call, checkpoint = request.checkpoint()](
                     const absl::Status& status) {
    access_->Record(call->caller(), MethodName("Snapshot"), status, checkpoint);
  });
  call->NoMoreQuestions(/*expected=*/2);  // FROZEN, WRITTEN
  store_->Snapshot(
      request,
      [flow = call->shared_from_this()](absl::StatusOr<SnapshotReply> reply) {
        flow->DeliverReply(std::move(reply));
      },
      [this](std::function<void()> write) { writes_.Run(std::move(write)); });
  return absl::OkStatus();
}

template <typename Request, typename Answer>
void ParameterService::AddUnary(
    const std::string& name, Answer answer,
    std::type_identity_t<std::function<WorkThread*(const Request&)>>
        thread_for) {
  // What only looks is not written down. A trace does it by itself: of its many
  // calls only the first one changes anything.
  const bool audited = name != "Hello" && name != "GetStatus" &&
                       name != "Trace" && name != kHealthCheckMethod;
  Add(name, [this, audited, method = MethodName(name),
             answer = std::move(answer),
             thread_for = std::move(thread_for)](GrpcCall* call) {
    // `caller` lives as long as the call.
    const auto run = [this, method, audited, answer](const Request& request,
                                                     GrpcCall* call) {
      auto reply = OrExhausted([&] { return answer(request, call->caller()); });
      if (absl::IsUnauthenticated(reply.status())) {
        access_->RecordRefusal(call->caller(), method, reply.status());
      } else if (audited) {
        access_->Record(call->caller(), method, reply.status());
      }
      LogAndDeliver(std::move(reply), call);
    };
    return Handler{[run, thread_for,
                    call](const ByteBuffer& buffer) -> absl::Status {
      Request request;
      WEIR_RETURN_IF_ERROR(DecodeMessage(buffer, &request));
      call->NoMoreQuestions(/*expected=*/1);
      WorkThread* thread = nullptr;
      if (thread_for) {
        thread = thread_for(request);
      }
      if (thread == nullptr) {
        run(request, call);
        return absl::OkStatus();
      }
      thread->Run([run, request = std::move(request), call,
                   alive = call->shared_from_this()] { run(request, call); });
      return absl::OkStatus();
    }};
  });
}

void ParameterService::AddControl() {
  AddUnary<HelloRequest>(
      "Hello", [this](const HelloRequest& request, const Caller& caller) {
        return Hello(request, caller);
      });
  // Hot ids are found by looking at every row.
  AddUnary<GetStatusRequest>(
      "GetStatus",
      [this](const GetStatusRequest& request, const Caller& caller) {
        return GetStatus(request, caller);
      },
      [this](const GetStatusRequest& request) -> WorkThread* {
        return request.hot_ids() > 0 ? &reports_ : nullptr;
      });
  // On the queue's thread: it takes locks for as long as one block's
  // arithmetic, and a worker waits for it to begin.
  AddUnary<SetSlotsRequest>(
      "SetSlots", [this](const SetSlotsRequest& request, const Caller& caller) {
        return Empty<SetSlotsReply>(SetSlots(request, caller));
      });
  // I1. Declare and Restore fill or read gigabytes.
  const auto work = [this](const auto&) { return &work_; };
  AddUnary<DeclareRequest>(
      "Declare",
      [this](const DeclareRequest& request, const Caller&) {
        return store_->Declare(request);
      },
      work);
  AddUnary<RestoreRequest>(
      "Restore",
      [this](const RestoreRequest& request, const Caller&) {
        return store_->Restore(request);
      },
      work);
  AddUnary<ShrinkRequest>(
      "Shrink",
      [this](const ShrinkRequest& request, const Caller&) {
        return store_->Shrink(request);
      },
      [this](const ShrinkRequest&) { return &writes_; });
  // What asks for parts may have to make them first.
  AddUnary<TraceRequest>(
      "Trace",
      [this](const TraceRequest& request, const Caller& caller) {
        const auto reply = traces_.Answer(request);
        if (request.start_ms() > 0) {
          access_->Record(caller, MethodName("Trace"), reply.status());
        }
        return reply;
      },
      [this](const TraceRequest& request) -> WorkThread* {
        const bool is_quick = request.trace() == 0 || request.start_ms() > 0;
        return is_quick ? nullptr : &reports_;
      });
  AddUnary<grpc::health::v1::HealthCheckRequest>(
      kHealthCheckMethod,
      [](const grpc::health::v1::HealthCheckRequest& request, const Caller&) {
        return CheckHealth(request, "weir.ParameterServer");
      });
  Add("Shutdown", [this](GrpcCall* call) {
    return Handler{[this, call](const ByteBuffer& buffer) {
      return Shutdown(buffer, call);
    }};
  });
}

SlotRights ParameterService::RightsOf(const Caller& caller) const {
  return {caller.identity, access_->has_chief()};
}

absl::StatusOr<PsStatus> ParameterService::GetStatus(
    const GetStatusRequest& request, const Caller& caller) {
  if (request.hot_ids() > 0 && !caller.MayBe(PeerRole::kAdmin)) {
    return absl::UnauthenticatedError(
        absl::StrCat(caller.name(),
                     " may not ask for hot ids: they visit every row, so "
                     "only an admin may"));
  }
  PsStatus status = Status(request, caller.MayBe(PeerRole::kAdmin) ||
                                        caller.MayBe(PeerRole::kChief));
  RightsOf(caller).Limit(status.mutable_hello());  // I2
  return status;
}

PsStatus ParameterService::Status(const GetStatusRequest& request,
                                  bool peers) const {
  PsStatus status = store_->GetStatus(request);
  if (host_meter_ != nullptr) {
    *status.mutable_usage() = ToProto(host_meter_->Read());
  }
  if (!peers) {
    return status;
  }
  for (const auto& [name, counts] : access_->counts()) {
    PeerStatus* const peer = status.add_peer();
    peer->set_name(name);
    peer->set_calls(counts.calls);
    peer->set_refused(counts.refused);
  }
  if (access_->listener() != nullptr) {
    const Listener::Counts counts = access_->listener()->counts();
    status.set_connections_accepted(counts.accepted);
    status.set_connections_failed(counts.failed);
    status.set_connections_closed(counts.closed);
  }
  return status;
}

absl::Status ParameterService::SetSlots(const SetSlotsRequest& request,
                                        const Caller& caller) {
  return RightsOf(caller).SetSlots(request, store_);
}

absl::StatusOr<HelloReply> ParameterService::Hello(const HelloRequest& request,
                                                   const Caller& caller) {
  WEIR_RETURN_IF_ERROR(CheckWireVersion("the caller", request.wire_version()));
  HelloReply reply = store_->Hello();
  reply.set_wire_version(kWireVersion);
  const SlotRights rights = RightsOf(caller);
  rights.Limit(&reply);  // I2
  if (shm_ != nullptr && caller.MayBe(PeerRole::kWorker)) {
    reply.set_shm_name(shm_->name());
    reply.set_shm_ticket(shm_->tickets()->Give());
  }
  if (leaving_ != nullptr) {
    if (request.chief() && rights.Leads()) {
      leaving_->OnChief();
    }
    reply.set_leaving(leaving_->begun());
  }
  return reply;
}

// The process ends after the reply has left, so that the chief hears that it
// was heard.
absl::Status ParameterService::Shutdown(const ByteBuffer& buffer,
                                        GrpcCall* call) {
  ShutdownRequest request;
  WEIR_RETURN_IF_ERROR(DecodeMessage(buffer, &request));
  const absl::Status status = store_->CheckShutdown(request);
  access_->Record(call->caller(), MethodName("Shutdown"), status);
  if (status.ok()) {
    call->WhenOver(
        [this,
         why = absl::Status(static_cast<absl::StatusCode>(request.code()),
                            Printable(request.reason(), kPeerMessageBytesMax))](
            const absl::Status&) { on_shutdown_(why); });
  }
  call->NoMoreQuestions(/*expected=*/1);
  LogAndDeliver(Empty<ShutdownReply>(status), call);
  return absl::OkStatus();
}

}  // namespace weir
