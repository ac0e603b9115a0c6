#include "client/cc/transport/shm_transport.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cc/transport/grpc_transport.h"
#include "client/cc/transport/shared_buffers.h"
#include "client/cc/transport/shm_connection.h"
#include "client/cc/transport/shm_stream.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/threads/thread.h"

namespace weir {
namespace {

// For a ps on this host, which answers at once or is not there.
constexpr std::chrono::milliseconds kHelloTimeout{1000};

// What opens in place of a stream through shared memory if there is none, and
// no other transport may take its place: opening a stream cannot fail, so the
// stream does.
template <typename Request, typename Answer>
class BrokenStream : public DataStream<Request, Answer> {
 public:
  explicit BrokenStream(absl::Status why) : why_(std::move(why)) {}
  absl::Status Send(const Request&, std::span<const char>,
                    std::function<void()> released) override {
    if (released) {
      released();
    }
    return why_;
  }
  absl::Status Receive(Answer*, Payload*) override { return why_; }
  void Cancel() override {}

 private:
  const absl::Status why_;
};

class ShmLink : public DataLink {
 public:
  ShmLink(std::unique_ptr<DataLink> other, std::string address,
          std::shared_ptr<SharedBuffers> buffers, bool fall_back)
      : other_(std::move(other)),
        address_(std::move(address)),
        buffers_(std::move(buffers)),
        fall_back_(fall_back) {}

  std::unique_ptr<PushPullStream> OpenPushPull() override {
    return Open(&MakeShmPushPull, &DataLink::OpenPushPull);
  }
  std::unique_ptr<PullRowsStream> OpenPullRows() override {
    return Open(&MakeShmPullRows, &DataLink::OpenPullRows);
  }

  absl::StatusOr<PushRowsReply> PushRows(
      Timeout timeout, const ChunkSource<PushRowsChunk>& next) override {
    // An update is one exchange on the link's own connection, which the next
    // one uses again: an update every step must not open one each time.
    MutexLock lock(&update_mutex_);
    if (updates_ == nullptr && !updates_take_other_) {
      const absl::StatusOr<HelloReply> hello = other_->Hello(kHelloTimeout);
      absl::StatusOr<std::unique_ptr<ShmConnection>> shared = OpenShared(hello);
      if (shared.ok()) {
        updates_ = *std::move(shared);
      } else if (!fall_back_) {
        return shared.status();
      } else {
        // These last: a ps on another host, of another user, or without shared
        // memory. After any other error (a ps that was busy, or had no session
        // to spare) the next update asks again.
        updates_take_other_ =
            hello.ok() && (absl::IsUnavailable(shared.status()) ||
                           absl::IsPermissionDenied(shared.status()));
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

  absl::StatusOr<HelloReply> Hello(Timeout timeout) override {
    return other_->Hello(timeout);
  }
  void Sever() override { other_->Sever(); }

  int UsefulStreams(int wanted) override {
    const int best = SharedStreams(Thread::hardware_concurrency());
    if (wanted > 0 || best == 1) {
      return std::max(wanted, 1);
    }
    return !fall_back_ || OpenShared(other_->Hello(kHelloTimeout)).ok()
               ? best
               : other_->UsefulStreams(wanted);
  }

 private:
  // Opens a stream through shared memory, or one of the other transport.
  template <typename Request, typename Answer>
  std::unique_ptr<DataStream<Request, Answer>> Open(
      std::unique_ptr<DataStream<Request, Answer>> (*make)(
          std::unique_ptr<ShmConnection>),
      std::unique_ptr<DataStream<Request, Answer>> (DataLink::*open_other)()) {
    absl::StatusOr<std::unique_ptr<ShmConnection>> shared =
        OpenShared(other_->Hello(kHelloTimeout));
    if (shared.ok()) {
      return make(*std::move(shared));
    }
    if (fall_back_) {
      return (other_.get()->*open_other)();
    }
    return std::make_unique<BrokenStream<Request, Answer>>(shared.status());
  }

  absl::StatusOr<std::unique_ptr<ShmConnection>> OpenShared(
      const absl::StatusOr<HelloReply>& hello) {
    absl::StatusOr<std::unique_ptr<ShmConnection>> shared =
        TryOpenShared(hello);
    const std::string how =
        shared.ok() ? "through shared memory" : shared.status().ToString();
    LOG_DEBUG("ps {}: {}", address_, how);
    return shared;
  }
  absl::StatusOr<std::unique_ptr<ShmConnection>> TryOpenShared(
      const absl::StatusOr<HelloReply>& hello) {
    WEIR_RETURN_IF_ERROR(hello.status());
    if (hello->shm_name().empty()) {
      return absl::UnavailableError(
          absl::StrCat("ps ", address_, ": offers no shared memory"));
    }
    return ShmConnection::Open(hello->shm_name(), hello->shm_ticket(), address_,
                               buffers_);
  }

  const std::unique_ptr<DataLink> other_;
  const std::string address_;
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

  std::unique_ptr<ControlLink> Connect(const std::string& address) override {
    return other_->Connect(address);
  }
  std::unique_ptr<DataLink> ConnectData(const std::string& address) override {
    return std::make_unique<ShmLink>(other_->ConnectData(address), address,
                                     buffers_, fall_back_);
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

int SharedStreams(unsigned processors) {
  constexpr unsigned kProcessorsPerStream = 4;
  constexpr unsigned kStreamsMax = 8;
  return static_cast<int>(
      std::clamp(processors / kProcessorsPerStream, 1U, kStreamsMax));
}

std::unique_ptr<Transport> MakeShmTransport(std::unique_ptr<Transport> other,
                                            bool fall_back) {
  return std::make_unique<ShmTransport>(std::move(other), fall_back);
}

std::unique_ptr<Transport> MakeTransport(TransportChoice choice,
                                         GrpcTransportOptions grpc) {
  if (choice == TransportChoice::kGrpc) {
    return MakeGrpcTransport(std::move(grpc));
  }
  return MakeShmTransport(MakeGrpcTransport(std::move(grpc)),
                          choice == TransportChoice::kAuto);
}

}  // namespace weir
