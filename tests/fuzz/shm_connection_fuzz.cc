// A ps of this host that answers through shared memory with anything: a client
// ends its connection with an error or goes on, and reads values from inside of
// the ps's memory only.
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/cc/transport/shared_buffers.h"
#include "client/cc/transport/shm_connection.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/io/shared_channel.h"
#include "common/io/unix_socket.h"
#include "proto/wire/shm_message.h"
#include "tests/fuzz/fuzz_input.h"

namespace weir {
namespace {

constexpr int kStepsMax = 32;
constexpr size_t kArenaBytes = 64 << 10;
constexpr size_t kWrittenAt = 320;  // common/io/shared_channel.h has the map

class HostilePs {
 public:
  HostilePs(UnixSocket socket, FuzzInput* input)
      : socket_(std::move(socket)), input_(*input) {
    static const auto* const arena =
        new std::shared_ptr<SharedMemory>(*SharedMemory::Create(kArenaBytes));
    ShmOpening opening;
    auto fd = socket_.Receive(RecordBytes(&opening));
    if (!fd.ok()) {
      return;
    }
    memory_ = *SharedMemory::Map(*std::move(fd), opening.bytes,
                                 SharedMemory::Access::kReadWrite);
    channel_ = std::make_unique<SharedChannel>(memory_, SharedChannel::kServer);
    ShmOpening answer;
    answer.bytes = (*arena)->bytes();
    if (input_.Byte() >= 250) {
      answer.magic = input_.Number();
      answer.bytes = input_.Number();
    }
    // A client that was stopped for a while may have given up.
    socket_.Send(RecordBytes(&answer), (*arena)->fd()).IgnoreError();
  }

  void Answer() {
    ShmAnswer head;
    const uint8_t how = input_.Byte();
    head.kind = how < 240 ? 1 + how % 3 : input_.Number();
    head.taken = input_.Number();
    head.answered = input_.Number();
    head.pin = input_.Number();
    head.code = input_.Number();
    std::string payload;
    if ((how & 16) != 0) {
      head.payload.region = input_.Number();
      head.payload.offset = input_.Number();
      head.payload.bytes = input_.Number();
    } else {
      payload = input_.Bytes(input_.Byte());
      head.payload.bytes = payload.size();
    }
    WriteShm(channel_.get(), head, input_.Text(), payload)
        .status()
        .IgnoreError();
  }

  void Corrupt() {
    const uint64_t written = input_.Number();
    std::memcpy(memory_->data() + kWrittenAt, &written, sizeof(written));
  }

  // Reads requests, so that there is room for more.
  void Take() {
    std::string message;
    while (channel_->TryRead(&message).value_or(false)) {
    }
  }

  void Close() { socket_.Shutdown(); }

 private:
  UnixSocket socket_;
  FuzzInput& input_;
  std::shared_ptr<SharedMemory> memory_;
  std::unique_ptr<SharedChannel> channel_;
};

class Client {
 public:
  Client(ShmConnection* connection, HostilePs* ps, FuzzInput* input)
      : connection_(*connection), ps_(*ps), input_(*input) {}

  void Run() {
    for (int i = 0; i < kStepsMax && !input_.empty(); ++i) {
      switch (input_.Below(6)) {
        case 0:
          Send();
          break;
        case 1:
        case 2:
          ps_.Answer();
          break;
        case 3:
          ps_.Take();
          break;
        case 4:
          Receive();
          break;
        default:
          Rare();
      }
    }
    Receive();
  }

 private:
  void Send() {
    const size_t bytes = size_t{64} * input_.Byte();
    const std::vector<char> payload(bytes);
    int released = 0;
    connection_
        .Send(static_cast<ShmRequest::Kind>(1 + input_.Below(4)),
              std::string(input_.Below(64), 'x'), payload,
              [&released] { ++released; })
        .IgnoreError();
    WEIR_CHECK(released == 1);  // it was copied
  }

  void Receive() {
    ShmConnection::Answer answer;
    const absl::Status status =
        connection_.Receive(&answer, MonotonicClock::now());
    if (!status.ok()) {
      return;
    }
    // Every byte of a payload can be read.
    std::vector<char> bytes(answer.payload.bytes() + 1);
    answer.payload.CopyTo(bytes.data());
    if (input_.Flag()) {
      kept_ = std::move(answer.payload);  // its pin is released later
    }
  }

  void Rare() {
    if (input_.Byte() >= 128) {
      ps_.Corrupt();
    } else {
      kept_ = Payload();
    }
  }

  ShmConnection& connection_;
  HostilePs& ps_;
  FuzzInput& input_;
  Payload kept_;
};

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using weir::HostilePs;
  using weir::UnixSocket;
  weir::SetLogLevel(weir::LogLevel::kError);
  static const auto* const name =
      new std::string("weir-shm-connection-fuzz-" + std::to_string(getpid()));
  static auto* const listener = new UnixSocket(*UnixSocket::Listen(*name));
  weir::FuzzInput input(data, size);
  std::unique_ptr<HostilePs> ps;
  std::thread server(
      [&] { ps = std::make_unique<HostilePs>(*listener->Accept(), &input); });
  auto connection = weir::ShmConnection::Open(
      *name, std::string(weir::kShmTicketBytes, 't'), "host:1",
      std::make_shared<weir::SharedBuffers>());
  server.join();
  if (connection.ok()) {
    weir::Client(connection->get(), ps.get(), &input).Run();
  }
  ps->Close();  // first, or the client waits for it
  return 0;
}
