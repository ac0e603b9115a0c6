#include <grpcpp/grpcpp.h>

#include <atomic>

#include "client/cc/job/chief_link.h"
#include "common/base/mutex.h"
#include "proto/chief.grpc.pb.h"
#include "proto/wire/grpc_channel.h"
#include "proto/wire/grpc_deadline.h"
#include "proto/wire/grpc_status.h"

namespace weir {
namespace {

class GrpcHeartbeat : public HeartbeatStream {
 public:
  GrpcHeartbeat(Chief::Stub* stub, std::atomic<bool>* answered)
      : stub_(stub), answered_(answered) {}

  void Open() override { stream_ = stub_->Heartbeat(&context_); }
  bool Read(Command* command) override { return stream_->Read(command); }
  bool Write(const Progress& progress) override {
    return stream_->Write(progress);
  }
  void WritesDone() override { stream_->WritesDone(); }
  absl::Status Finish() override {
    return FromGrpcStatus(stream_->Finish(), answered_);
  }
  void Cancel() override { context_.TryCancel(); }

 private:
  Chief::Stub* const stub_;
  std::atomic<bool>* const answered_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<Progress, Command>> stream_;
};

class GrpcChiefLink : public ChiefLink {
 public:
  GrpcChiefLink(const std::string& address, const Security& security)
      : address_(address),
        stub_(Chief::NewStub(grpc::CreateCustomChannel(
            address, security.ToChief(), CommonChannelArguments()))) {}

  const std::string& address() const override { return address_; }

  absl::Status Register(const RegisterRequest& request,
                        std::chrono::milliseconds timeout,
                        RegisterReply* reply) override {
    grpc::ClientContext context;
    // A call that waits keeps the channel connecting; between calls gRPC looks
    // at an idle channel only every 5 seconds.
    context.set_wait_for_ready(true);
    context.set_deadline(DeadlineAfter(timeout));
    return FromGrpcStatus(stub_->Register(&context, request, reply),
                          &answered_);
  }

  absl::Status Probe(std::chrono::milliseconds timeout) override {
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(timeout));
    ChiefStatus reply;
    return FromGrpcStatus(stub_->GetStatus(&context, {}, &reply), &answered_);
  }

  std::unique_ptr<HeartbeatStream> NewHeartbeat() override {
    return std::make_unique<GrpcHeartbeat>(stub_.get(), &answered_);
  }

  absl::Status PutTrace(const PutTraceRequest& request,
                        std::chrono::milliseconds timeout,
                        PutTraceReply* reply) override {
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(timeout));
    {
      MutexLock lock(&mutex_);
      put_trace_ = &context;
    }
    const absl::Status status =
        FromGrpcStatus(stub_->PutTrace(&context, request, reply), &answered_);
    MutexLock lock(&mutex_);
    put_trace_ = nullptr;
    return status;
  }

  void CancelPutTrace() override {
    MutexLock lock(&mutex_);
    if (put_trace_ != nullptr) {
      put_trace_->TryCancel();
    }
  }

 private:
  const std::string address_;
  const std::unique_ptr<Chief::Stub> stub_;
  std::atomic<bool> answered_{false};  // one of the calls was
  Mutex mutex_;
  grpc::ClientContext* put_trace_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace

std::shared_ptr<ChiefLink> MakeGrpcChiefLink(
    const std::string& address,
    const std::shared_ptr<const Security>& security) {
  return std::make_shared<GrpcChiefLink>(address,
                                         *Security::OrInsecure(security));
}

}  // namespace weir
