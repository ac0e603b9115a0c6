#include "client/cc/transport/shm_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cc/transport/grpc_transport.h"
#include "client/cc/transport/shared_buffers.h"
#include "client/cc/transport/shm_connection.h"
#include "client/cc/transport/shm_stream.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "common/base/status.h"

namespace weir {
namespace {

// For a ps on this host, which answers at once or is not there.
constexpr std::chrono::milliseconds kHelloTimeout{1000};

// kShm opens this if there is no shared memory: OpenPullRows and OpenPushPull
// cannot fail, so their streams do.
class BrokenPullRows : public PullRowsStream {
 public:
  explicit BrokenPullRows(absl::Status why) : why_(std::move(why)) {}
  absl::Status Send(const PullRowsChunk&) override { return why_; }
  absl::Status Receive(RowChunk*, Payload*) override { return why_; }
  void Cancel() override {}

 private:
  const absl::Status why_;
};

class BrokenStream : public PushPullStream {
 public:
  explicit BrokenStream(absl::Status why) : why_(std::move(why)) {}
  absl::Status Send(const GradientChunk&, std::span<const char>,
                    std::function<void()> released) override {
    if (released) {
      released();
    }
    return why_;
  }
  absl::Status Receive(ValueChunk*, Payload*) override { return why_; }
  void Cancel() override {}

 private:
  const absl::Status why_;
};

class ShmLink : public ShardLink {
 public:
  ShmLink(std::unique_ptr<ShardLink> other,
          std::shared_ptr<SharedBuffers> buffers, bool fall_back)
      : other_(std::move(other)),
        buffers_(std::move(buffers)),
        fall_back_(fall_back) {}

  const std::string& address() const override { return other_->address(); }
  void Sever() override { other_->Sever(); }

  std::unique_ptr<PushPullStream> OpenPushPull() override {
    absl::StatusOr<std::unique_ptr<ShmConnection>> shared = OpenShared();
    if (shared.ok()) {
      return MakeShmPushPull(*std::move(shared));
    }
    if (fall_back_) {
      return other_->OpenPushPull();
    }
    return std::make_unique<BrokenStream>(shared.status());
  }

  // More streams help where one connection does not fill the link. Through
  // shared memory there is no link to fill, so one is enough.
  int UsefulStreams(int wanted) override {
    if (!fall_back_ || OpenShared().ok()) {
      return 1;
    }
    return other_->UsefulStreams(wanted);
  }

  absl::Status Pull(
      const PullRequest& request, Timeout timeout,
      const std::function<absl::Status(const ValueChunk&, const Payload&)>&
          chunk) override {
    return other_->Pull(request, timeout, chunk);
  }
  absl::StatusOr<PushReply> Push(
      Timeout timeout,
      const std::function<bool(GradientChunk*, std::span<const char>*)>& next)
      override {
    return other_->Push(timeout, next);
  }
  std::unique_ptr<PullRowsStream> OpenPullRows() override {
    absl::StatusOr<std::unique_ptr<ShmConnection>> shared = OpenShared();
    if (shared.ok()) {
      return MakeShmPullRows(*std::move(shared));
    }
    if (fall_back_) {
      return other_->OpenPullRows();
    }
    return std::make_unique<BrokenPullRows>(shared.status());
  }
  absl::StatusOr<PushRowsReply> PushRows(
      Timeout timeout,
      const std::function<bool(PushRowsChunk*, std::span<const char>*)>& next)
      override {
    // An update is one exchange on the link's own connection, which the next
    // one uses again: an update every step must not open one each time.
    MutexLock lock(&update_mutex_);
    if (updates_ == nullptr && !updates_take_other_) {
      absl::StatusOr<std::unique_ptr<ShmConnection>> shared = OpenShared();
      if (shared.ok()) {
        updates_ = *std::move(shared);
      } else if (!fall_back_) {
        return shared.status();
      } else {
        // These two last: another host or user, or an older ps. After any other
        // error (a ps that was busy) the next update asks again.
        updates_take_other_ = absl::IsUnavailable(shared.status()) ||
                              absl::IsPermissionDenied(shared.status());
      }
    }
    if (updates_ == nullptr) {
      return other_->PushRows(timeout, next);
    }
    absl::StatusOr<PushRowsReply> reply =
        PushRowsThroughShm(updates_.get(), timeout, next);
    if (!reply.ok()) {
      updates_ = nullptr;  // late answers of this update must not meet the next
    }
    return reply;
  }
  absl::StatusOr<ShrinkReply> Shrink(const ShrinkRequest& request,
                                     Timeout timeout) override {
    return other_->Shrink(request, timeout);
  }
  absl::StatusOr<AssignReply> Assign(
      Timeout timeout,
      const std::function<bool(AssignChunk*, std::span<const char>*)>& next)
      override {
    return other_->Assign(timeout, next);
  }
  absl::StatusOr<HelloReply> Hello(Timeout timeout) override {
    return other_->Hello(timeout);
  }
  void SpeakAsChief() override { other_->SpeakAsChief(); }
  absl::StatusOr<DeclareReply> Declare(const DeclareRequest& request,
                                       Timeout timeout) override {
    return other_->Declare(request, timeout);
  }
  absl::StatusOr<DeclareReply> Restore(const RestoreRequest& request,
                                       Timeout timeout) override {
    return other_->Restore(request, timeout);
  }
  absl::Status SetSlots(const SetSlotsRequest& request,
                        Timeout timeout) override {
    return other_->SetSlots(request, timeout);
  }
  absl::Status Snapshot(
      const SnapshotRequest& request, Timeout timeout,
      const std::function<void(const SnapshotReply&)>& reply) override {
    return other_->Snapshot(request, timeout, reply);
  }
  absl::StatusOr<PsStatus> GetStatus(Timeout timeout, int hot_ids) override {
    return other_->GetStatus(timeout, hot_ids);
  }
  absl::Status Shutdown(const ShutdownRequest& request,
                        Timeout timeout) override {
    return other_->Shutdown(request, timeout);
  }

 private:
  absl::StatusOr<std::unique_ptr<ShmConnection>> OpenShared() {
    absl::StatusOr<std::unique_ptr<ShmConnection>> shared = TryOpenShared();
    const std::string how =
        shared.ok() ? "through shared memory" : shared.status().ToString();
    LOG_DEBUG("ps {}: {}", address(), how);
    return shared;
  }
  absl::StatusOr<std::unique_ptr<ShmConnection>> TryOpenShared() {
    WEIR_ASSIGN_OR_RETURN(const HelloReply hello, other_->Hello(kHelloTimeout));
    if (hello.shm_name().empty()) {
      return absl::UnavailableError(
          absl::StrCat("ps ", address(), ": offers no shared memory"));
    }
    return ShmConnection::Open(hello.shm_name(), address(), buffers_);
  }

  const std::unique_ptr<ShardLink> other_;
  const std::shared_ptr<SharedBuffers> buffers_;
  const bool fall_back_;

  Mutex update_mutex_;  // held during an update
  std::unique_ptr<ShmConnection> updates_ ABSL_GUARDED_BY(update_mutex_);
  bool updates_take_other_ ABSL_GUARDED_BY(update_mutex_) = false;
};

class ShmTransport : public Transport {
 public:
  ShmTransport(std::unique_ptr<Transport> other, bool fall_back)
      : other_(std::move(other)), fall_back_(fall_back) {}

  std::shared_ptr<float> NewBuffer(size_t elements) override {
    std::shared_ptr<float> buffer =
        SharedBuffers::New(buffers_, elements * sizeof(float));
    if (buffer == nullptr) {
      // /dev/shm is small in many containers. Streams then copy each payload.
      return other_->NewBuffer(elements);
    }
    return buffer;
  }

  std::unique_ptr<ShardLink> Connect(const std::string& address) override {
    return std::make_unique<ShmLink>(other_->Connect(address), buffers_,
                                     fall_back_);
  }

 private:
  const std::unique_ptr<Transport> other_;
  const bool fall_back_;
  const std::shared_ptr<SharedBuffers> buffers_ =
      std::make_shared<SharedBuffers>();
};

}  // namespace

absl::StatusOr<TransportChoice> ParseTransportChoice(const std::string& text) {
  if (text == "auto") {
    return TransportChoice::kAuto;
  }
  if (text == "grpc") {
    return TransportChoice::kGrpc;
  }
  if (text == "shm") {
    return TransportChoice::kShm;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("transport '", text, "' is not auto, grpc or shm"));
}

std::unique_ptr<Transport> MakeShmTransport(std::unique_ptr<Transport> other,
                                            bool fall_back) {
  return std::make_unique<ShmTransport>(std::move(other), fall_back);
}

std::unique_ptr<Transport> MakeTransport(TransportChoice choice,
                                         GrpcTransportOptions grpc) {
  if (choice == TransportChoice::kGrpc) {
    return MakeGrpcTransport(grpc);
  }
  return MakeShmTransport(MakeGrpcTransport(grpc),
                          choice == TransportChoice::kAuto);
}

}  // namespace weir
