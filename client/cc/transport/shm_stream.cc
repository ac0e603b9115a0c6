#include "client/cc/transport/shm_stream.h"

#include <utility>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace weir {
namespace {

// Pieces of an update that may be without an answer: the ps reads one while the
// next are encoded here, and their memory stays until it has.
constexpr int kPushAhead = 4;

template <class Chunk>
absl::Status Parse(const ShmConnection::Answer& answer, Chunk* chunk) {
  if (!chunk->ParseFromArray(answer.chunk.data(),
                             static_cast<int>(answer.chunk.size()))) {
    return absl::InternalError(
        "cannot parse an answer of the ps through shared memory");
  }
  return absl::OkStatus();
}

// A stream whose requests are of kind `kKind`.
template <typename Request, typename Answer, ShmRequest::Kind kKind>
class ShmStream : public DataStream<Request, Answer> {
 public:
  explicit ShmStream(std::unique_ptr<ShmConnection> connection)
      : connection_(std::move(connection)) {}

  absl::Status Send(const Request& header, std::span<const char> payload,
                    std::function<void()> released) override {
    return connection_->Send(kKind, header.SerializeAsString(), payload,
                             std::move(released));
  }

  absl::Status Receive(Answer* header, Payload* payload) override {
    // Values that the caller has read must not be what the ps waits for.
    *payload = Payload();
    ShmConnection::Answer answer;
    WEIR_RETURN_IF_ERROR(connection_->Receive(&answer));
    *payload = std::move(answer.payload);
    return Parse(answer, header);
  }

  // The ps reads requests whether or not its answers find room, and fewer are
  // open (ShardExchange::kInFlightRequestsMax) than it allows
  // (kShmUnansweredMax), so Send never waits for a Receive.
  bool SendNeedsReceiver() const override { return false; }

  void Cancel() override { connection_->Cancel(); }

 private:
  const std::unique_ptr<ShmConnection> connection_;
};

}  // namespace

std::unique_ptr<PushPullStream> MakeShmPushPull(
    std::unique_ptr<ShmConnection> connection) {
  return std::make_unique<
      ShmStream<GradientChunk, ValueChunk, ShmRequest::kChunk>>(
      std::move(connection));
}

std::unique_ptr<PullRowsStream> MakeShmPullRows(
    std::unique_ptr<ShmConnection> connection) {
  return std::make_unique<
      ShmStream<PullRowsChunk, RowChunk, ShmRequest::kPullRows>>(
      std::move(connection));
}

absl::StatusOr<PushRowsReply> PushRowsThroughShm(
    ShmConnection* connection, std::chrono::milliseconds timeout,
    const ChunkSource<PushRowsChunk>& next) {
  const auto deadline = MonotonicClock::now() + timeout;
  PushRowsChunk chunk;
  std::span<const char> payload;
  ShmConnection::Answer answer;
  int unanswered = 0;
  while (next(&chunk, &payload)) {
    WEIR_RETURN_IF_ERROR(connection->Send(
        ShmRequest::kPushRows, chunk.SerializeAsString(), payload, nullptr));
    ++unanswered;
    while (unanswered > kPushAhead) {
      WEIR_RETURN_IF_ERROR(connection->Receive(&answer, deadline));
      --unanswered;
    }
  }
  // The last answer is the reply; the ps has read all pieces before it.
  for (; unanswered > 0; --unanswered) {
    WEIR_RETURN_IF_ERROR(connection->Receive(&answer, deadline));
  }
  PushRowsReply reply;
  WEIR_RETURN_IF_ERROR(Parse(answer, &reply));
  return reply;
}

}  // namespace weir
