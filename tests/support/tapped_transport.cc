#include "tests/support/tapped_transport.h"

#include <functional>
#include <span>
#include <utility>

namespace weir {
namespace {

absl::Status Lost() {
  return absl::UnavailableError("the test ended the connection");
}

bool Note(TappedTransport* tap, const ValueChunk& answer) {
  return tap->Note(answer.receipt(), answer.not_yet());
}
bool Note(TappedTransport* tap, const RowChunk& answer) {
  return tap->Note(Receipt(), answer.not_yet());
}

template <typename Request, typename Answer>
class TappedStream : public DataStream<Request, Answer> {
 public:
  using Stream = DataStream<Request, Answer>;

  TappedStream(TappedTransport* tap, std::unique_ptr<Stream> stream)
      : tap_(tap), stream_(std::move(stream)) {}

  absl::Status Send(const Request& header, std::span<const char> payload,
                    std::function<void()> released) override {
    return stream_->Send(header, payload, std::move(released));
  }
  bool SendNeedsReceiver() const override {
    return stream_->SendNeedsReceiver();
  }
  absl::Status Receive(Answer* header, Payload* payload) override {
    const absl::Status status = stream_->Receive(header, payload);
    if (status.ok() && !Note(tap_, *header)) {
      *payload = Payload();
      stream_->Sever();
      return Lost();
    }
    return status;
  }
  void Cancel() override { stream_->Cancel(); }
  int64_t BytesMoved() override { return stream_->BytesMoved(); }
  void Sever() override { stream_->Sever(); }

 private:
  TappedTransport* const tap_;
  const std::unique_ptr<Stream> stream_;
};

class TappedLink : public DataLink {
 public:
  TappedLink(TappedTransport* tap, std::unique_ptr<DataLink> link)
      : tap_(tap), link_(std::move(link)) {}

  std::unique_ptr<PushPullStream> OpenPushPull() override {
    return std::make_unique<TappedStream<GradientChunk, ValueChunk>>(
        tap_, link_->OpenPushPull());
  }
  std::unique_ptr<PullRowsStream> OpenPullRows() override {
    return std::make_unique<TappedStream<PullRowsChunk, RowChunk>>(
        tap_, link_->OpenPullRows());
  }
  absl::StatusOr<PushRowsReply> PushRows(
      Timeout timeout, const ChunkSource<PushRowsChunk>& next) override {
    absl::StatusOr<PushRowsReply> reply = link_->PushRows(timeout, next);
    if (reply.ok() && !tap_->Note(reply->receipt(), /*not_yet=*/false)) {
      link_->Sever();
      return Lost();
    }
    return reply;
  }
  absl::StatusOr<HelloReply> Hello(Timeout timeout) override {
    return link_->Hello(timeout);
  }
  void Sever() override { link_->Sever(); }
  int UsefulStreams(int wanted) override {
    return link_->UsefulStreams(wanted);
  }

 private:
  TappedTransport* const tap_;
  const std::unique_ptr<DataLink> link_;
};

}  // namespace

std::unique_ptr<DataLink> TappedTransport::ConnectData(
    const std::string& address) {
  return std::make_unique<TappedLink>(this, other_->ConnectData(address));
}

void TappedTransport::LoseNextReceipt() {
  MutexLock lock(&mutex_);
  lose_next_ = true;
}

bool TappedTransport::Note(const Receipt& receipt, bool not_yet) {
  MutexLock lock(&mutex_);
  const bool has_receipt = receipt.outcome() != Receipt::NONE;
  if (has_receipt && std::exchange(lose_next_, false)) {
    return false;
  }
  receipts_[receipt.outcome()] += 1;
  not_yets_ += not_yet ? 1 : 0;
  return true;
}

int TappedTransport::receipts(Receipt::Outcome outcome) const {
  MutexLock lock(&mutex_);
  const auto found = receipts_.find(outcome);
  return found == receipts_.end() ? 0 : found->second;
}

int TappedTransport::not_yets() const {
  MutexLock lock(&mutex_);
  return not_yets_;
}

}  // namespace weir
