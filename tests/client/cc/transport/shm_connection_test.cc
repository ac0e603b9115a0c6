// A ShmConnection against a ps that the test plays by hand, so that it can be
// slow, of another version, or gone. shm_transport_test.cc has a real one.
#include "client/cc/transport/shm_connection.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/cc/transport/shared_buffers.h"
#include "common/base/clock.h"
#include "common/io/shared_channel.h"
#include "common/io/shared_memory.h"
#include "common/io/unix_socket.h"
#include "proto/wire/shm_message.h"
#include "tests/support/no_threads.h"
#include "tests/support/wait_until.h"

namespace weir {
namespace {

using std::chrono::milliseconds;

constexpr size_t kArenaBytes = 4096;

std::string Name() {
  return "weir-shm-connection-test-" + std::to_string(getpid());
}

ShmConnection::Deadline In(milliseconds time) {
  return MonotonicClock::now() + time;
}

template <typename Record>
std::span<const char> RecordOf(const Record& record) {
  return {reinterpret_cast<const char*>(&record), sizeof(record)};
}

std::string Ticket() { return std::string(kShmTicketBytes, 't'); }

// The ps's end of one connection.
class FakePs {
 public:
  // Accepts the connection of `listener` and answers with `magic`.
  FakePs(UnixSocket* listener, uint64_t magic)
      : socket_(*listener->Accept()),
        arena_(*SharedMemory::Create(kArenaBytes)) {
    ShmOpening opening;
    auto fd = socket_.Receive(RecordBytes(&opening));
    EXPECT_TRUE(fd.ok()) << fd.status();
    EXPECT_EQ(std::string(opening.ticket.begin(), opening.ticket.end()),
              Ticket());
    channel_ = std::make_unique<SharedChannel>(
        *SharedMemory::Map(*std::move(fd), opening.bytes,
                           SharedMemory::Access::kReadWrite),
        SharedChannel::kServer);
    ShmOpening answer;
    answer.magic = magic;
    answer.bytes = arena_->bytes();
    EXPECT_TRUE(socket_.Send(RecordOf(answer), arena_->fd()).ok());
  }

  // The next request; empty if none comes.
  std::string NextRequest() {
    std::string message;
    const auto deadline = In(std::chrono::seconds(20));
    while (MonotonicClock::now() < deadline) {
      const uint32_t seen = channel_->bell();
      if (*channel_->TryRead(&message)) {
        return message;
      }
      channel_->Wait(seen, milliseconds(100));
    }
    return "";
  }
  void Answer(const ShmAnswer& head, const std::string& chunk) {
    EXPECT_TRUE(*WriteShm(channel_.get(), head, chunk, {}));
  }
  SharedMemory* arena() { return arena_.get(); }
  void Close() { socket_.Shutdown(); }

 private:
  UnixSocket socket_;
  const std::shared_ptr<SharedMemory> arena_;
  std::unique_ptr<SharedChannel> channel_;
};

// A connection and the ps that it is to.
struct Pair {
  explicit Pair(uint64_t magic = kShmMagic) {
    UnixSocket listener = *UnixSocket::Listen(Name());
    std::thread server(
        [&] { ps = std::make_unique<FakePs>(&listener, magic); });
    auto opened = ShmConnection::Open(Name(), Ticket(), "host:1",
                                      std::make_shared<SharedBuffers>());
    server.join();
    status = opened.status();
    if (opened.ok()) {
      connection = *std::move(opened);
    }
  }
  // The ps goes first, so that the connection does not wait for it.
  ~Pair() { ps->Close(); }

  absl::Status status;
  std::unique_ptr<ShmConnection> connection;
  std::unique_ptr<FakePs> ps;
};

TEST(ShmConnectionTest, NobodyListens) {
  const auto opened = ShmConnection::Open(Name() + "-none", Ticket(), "host:1",
                                          std::make_shared<SharedBuffers>());
  EXPECT_TRUE(absl::IsUnavailable(opened.status())) << opened.status();
}

TEST(ShmConnectionTest, APsOfAnotherVersionIsNotUsed) {
  Pair pair(/*magic=*/kShmMagic + 1);
  EXPECT_TRUE(absl::IsUnavailable(pair.status)) << pair.status;
}

TEST(ShmConnectionTest, APsWithoutASessionToSpareIsAskedAgain) {
  UnixSocket listener = *UnixSocket::Listen(Name());
  std::thread server([&] { EXPECT_TRUE(listener.Accept().ok()); });
  const auto opened = ShmConnection::Open(Name(), Ticket(), "host:1",
                                          std::make_shared<SharedBuffers>());
  server.join();
  EXPECT_TRUE(absl::IsResourceExhausted(opened.status())) << opened.status();
}

TEST(ShmConnectionTest, WithoutAThreadThereIsNoConnection) {
  UnixSocket listener = *UnixSocket::Listen(Name());
  std::atomic<bool> runs{false};
  std::unique_ptr<FakePs> ps;
  std::thread server([&] {
    runs = true;
    ps = std::make_unique<FakePs>(&listener, kShmMagic);
  });
  ASSERT_TRUE(WaitUntil([&] { return runs.load(); }));
  absl::Status status;
  {
    const NoThreads none;
    status = ShmConnection::Open(Name(), Ticket(), "host:1",
                                 std::make_shared<SharedBuffers>())
                 .status();
  }
  server.join();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

TEST(ShmConnectionTest, ASmallPayloadGoesInlineAndIsFreeAtOnce) {
  Pair pair;
  ASSERT_TRUE(pair.status.ok()) << pair.status;
  const std::vector<char> payload = {'a', 'b', 'c'};
  int released = 0;
  ASSERT_TRUE(
      pair.connection
          ->Send(ShmRequest::kChunk, "head", payload, [&] { ++released; })
          .ok());
  EXPECT_EQ(released, 1);
  const std::string message = pair.ps->NextRequest();
  ShmRequest head;
  std::span<const char> chunk;
  std::span<const char> rest;
  ASSERT_TRUE(ParseShm(message, &head, &chunk, &rest).ok());
  EXPECT_EQ(head.kind, ShmRequest::kChunk);
  EXPECT_EQ(std::string(chunk.begin(), chunk.end()), "head");
  EXPECT_EQ(std::string(rest.begin(), rest.end()), "abc");
}

TEST(ShmConnectionTest, AnAnswerPointsIntoTheArenaUntilItsPinIsReleased) {
  Pair pair;
  ASSERT_TRUE(pair.status.ok()) << pair.status;
  std::memcpy(pair.ps->arena()->data() + 100, "values", 6);
  ShmAnswer answer;
  answer.pin = 7;
  answer.payload = {1, 100, 6};
  pair.ps->Answer(answer, "head");
  {
    ShmConnection::Answer got;
    ASSERT_TRUE(
        pair.connection->Receive(&got, In(std::chrono::seconds(20))).ok());
    EXPECT_EQ(std::string(got.chunk.begin(), got.chunk.end()), "head");
    ASSERT_EQ(got.payload.pieces().size(), 1u);
    const std::span<const char> values = got.payload.pieces()[0];
    EXPECT_EQ(std::string(values.begin(), values.end()), "values");
  }
  const std::string message = pair.ps->NextRequest();
  ShmRequest head;
  std::span<const char> chunk;
  std::span<const char> rest;
  ASSERT_TRUE(ParseShm(message, &head, &chunk, &rest).ok());
  EXPECT_EQ(head.kind, ShmRequest::kRelease);
  EXPECT_EQ(head.pin, 7u);
}

TEST(ShmConnectionTest, AnAnswerOutsideTheArenaEndsTheConnection) {
  Pair pair;
  ASSERT_TRUE(pair.status.ok()) << pair.status;
  ShmAnswer answer;
  answer.payload = {1, kArenaBytes * 1000, 6};
  pair.ps->Answer(answer, "head");
  ShmConnection::Answer got;
  const absl::Status status =
      pair.connection->Receive(&got, In(std::chrono::seconds(20)));
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  // The first reason stays, for sends too.
  EXPECT_EQ(pair.connection->Send(ShmRequest::kChunk, "head", {}, nullptr),
            status);
}

// The connection ends with the status.
absl::Status EndBy(const ShmAnswer& answer) {
  Pair pair;
  pair.ps->Answer(answer, "head");
  ShmConnection::Answer got;
  const absl::Status status =
      pair.connection->Receive(&got, In(std::chrono::seconds(20)));
  // Neither waits for room nor sends.
  EXPECT_EQ(pair.connection->Send(ShmRequest::kChunk, "head", {}, nullptr),
            status);
  return status;
}

TEST(ShmConnectionTest, AnAnswerToMoreThanWasAskedEndsTheConnection) {
  ShmAnswer answer;
  answer.answered = 1;
  EXPECT_EQ(
      EndBy(answer),
      absl::DataLossError("ps host:1: it took 0 and answered 1 of 0 requests"));
  answer.answered = 0;
  answer.taken = ~uint64_t{0};
  EXPECT_TRUE(absl::IsDataLoss(EndBy(answer)));
}

TEST(ShmConnectionTest, AnAnswerWithoutItsPayloadEndsTheConnection) {
  ShmAnswer answer;
  answer.payload.bytes = 6;
  EXPECT_EQ(EndBy(answer),
            absl::DataLossError(
                "ps host:1: an answer with 0 of 6 bytes of its payload"));
}

TEST(ShmConnectionTest, ThePssLastWordIsTheReason) {
  Pair pair;
  ASSERT_TRUE(pair.status.ok()) << pair.status;
  ShmAnswer answer;
  answer.kind = ShmAnswer::kEnd;
  answer.code = static_cast<uint64_t>(absl::StatusCode::kPermissionDenied);
  pair.ps->Answer(answer, "replaced\nforged");
  ShmConnection::Answer got;
  const absl::Status status =
      pair.connection->Receive(&got, In(std::chrono::seconds(20)));
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_EQ(std::string(status.message()), "ps host:1: replaced\\nforged");
}

TEST(ShmConnectionTest, AnEndWithoutAnErrorIsUnavailable) {
  Pair pair;
  ASSERT_TRUE(pair.status.ok()) << pair.status;
  ShmAnswer answer;
  answer.kind = ShmAnswer::kEnd;
  pair.ps->Answer(answer, "");
  ShmConnection::Answer got;
  const absl::Status status =
      pair.connection->Receive(&got, In(std::chrono::seconds(20)));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST(ShmConnectionTest, ReceiveEndsAtItsDeadlineAndMayBeRepeated) {
  Pair pair;
  ASSERT_TRUE(pair.status.ok()) << pair.status;
  ShmConnection::Answer got;
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      pair.connection->Receive(&got, In(milliseconds(20)))));
  pair.ps->Answer(ShmAnswer(), "late");
  ASSERT_TRUE(
      pair.connection->Receive(&got, In(std::chrono::seconds(20))).ok());
  EXPECT_EQ(std::string(got.chunk.begin(), got.chunk.end()), "late");
}

TEST(ShmConnectionTest, CancelWakesWhoWaits) {
  Pair pair;
  ASSERT_TRUE(pair.status.ok()) << pair.status;
  absl::Status status;
  std::thread reader([&] {
    ShmConnection::Answer got;
    status = pair.connection->Receive(&got, In(std::chrono::seconds(20)));
  });
  pair.connection->Cancel();
  reader.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

TEST(ShmConnectionTest, APsThatIsGoneIsUnavailable) {
  Pair pair;
  ASSERT_TRUE(pair.status.ok()) << pair.status;
  pair.ps->Answer(ShmAnswer(), "last");
  pair.ps->Close();
  ShmConnection::Answer got;
  // Answers that came before the end are still received.
  ASSERT_TRUE(
      pair.connection->Receive(&got, In(std::chrono::seconds(20))).ok());
  const absl::Status status =
      pair.connection->Receive(&got, In(std::chrono::seconds(20)));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

}  // namespace
}  // namespace weir
