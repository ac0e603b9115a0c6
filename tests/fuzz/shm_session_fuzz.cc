// A client of this host that keeps no rule of the shared-memory transport: a ps
// serves its session to the end, whatever is in the opening, in the records of
// memory, in the ring and in the memory that requests point to.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/logging.h"
#include "common/io/shared_channel.h"
#include "common/io/unix_socket.h"
#include "google/protobuf/text_format.h"
#include "proto/wire/shm_message.h"
#include "server/ps/memory/shared_arena.h"
#include "server/ps/service/shm_session.h"
#include "server/ps/service/shm_tickets.h"
#include "server/ps/store/store.h"
#include "tests/fuzz/fuzz_input.h"

namespace weir {
namespace {

constexpr int kMessagesMax = 24;
constexpr size_t kRegionBytes = 8192;
constexpr size_t kWrittenAt = 128;  // common/io/shared_channel.h has the map
// A block is larger than what an answer brings along, so that it is pinned.
constexpr char kJob[] =
    "job: 'fuzz' history: 1 shard_count: 1 slot_count: 1 "
    "block_elements: 2048 out_of_order_bytes: 4096 update { async {} } "
    "variable { name: 'w' shape: 4096 } "
    "group { optimizer { sgd {} } schedule { learning_rate: 1 } } "
    "table { name: 't' dim: 2 schedule { learning_rate: 1 } "
    "  initializer { zeros {} } optimizer { sgd {} } }";

// The ps is the same for all inputs, as it is for all its clients.
class Ps {
 public:
  Ps() {
    SetLogLevel(LogLevel::kError);
    arena_ = *SharedArena::Create();
    store_ = *Store::Create({.arena = arena_.get(), .incarnation = 7});
    DeclareRequest request;
    WEIR_CHECK(google::protobuf::TextFormat::ParseFromString(
        kJob, request.mutable_declaration()));
    sender_.set_layout_fingerprint(
        store_->Declare(request)->layout_fingerprint());
    sender_.set_job("fuzz");
    sender_.set_history(1);
    SetSlotsRequest live;
    *live.mutable_sender() = sender_;
    live.add_slot()->set_generation(1);
    WEIR_CHECK(store_->SetSlots(live).ok());
    sender_.set_generation(1);
    listener_ = *UnixSocket::Listen(name_);
  }

  UnixSocket Connect() { return *UnixSocket::Connect(name_); }
  std::shared_ptr<ShmSession> Accept() {
    return std::make_shared<ShmSession>(
        store_.get(), arena_.get(), *listener_.Accept(),
        std::chrono::milliseconds(1000), &tickets_);
  }
  std::string Ticket() { return tickets_.Give(); }
  const Sender& sender() const { return sender_; }

 private:
  const std::string name_ = "weir-shm-session-fuzz-" + std::to_string(getpid());
  std::unique_ptr<SharedArena> arena_;
  std::unique_ptr<Store> store_;
  ShmTickets tickets_;
  Sender sender_;
  UnixSocket listener_;
};

class Client {
 public:
  Client(Ps* ps, FuzzInput* input)
      : ps_(*ps),
        input_(*input),
        socket_(ps->Connect()),
        session_(ps->Accept()),
        memory_(*SharedMemory::Create(SharedChannel::kMemoryBytes)),
        channel_(memory_, SharedChannel::kClient),
        server_([this] {
          session_->Run();
          ended_ = true;
        }) {}

  ~Client() {
    socket_.ShutdownSend();
    server_.join();
  }

  void Run() {
    ShmOpening opening;
    opening.bytes = memory_->bytes();
    const uint8_t how = input_.Byte();
    if (how != 249) {
      const std::string ticket = ps_.Ticket();
      std::copy(ticket.begin(), ticket.end(), opening.ticket.begin());
    }
    if (how >= 250) {
      opening.magic = input_.Number();
      opening.bytes = input_.Number();
    }
    Send(RecordBytes(&opening), memory_->fd());
    for (int i = 0; i < kMessagesMax && !input_.empty(); ++i) {
      Step();
    }
    WaitUntilRead();
  }

 private:
  void Step() {
    switch (input_.Below(8)) {
      case 0:
        return HandOver();
      case 1:
        return Read();
      case 2:
        return Corrupt();
      default:
        return Request();
    }
  }

  // The ps may have gone already.
  void Send(std::span<const char> record, int fd) {
    socket_.Send(record, fd).IgnoreError();
  }

  // Memory with a list of ids and floats in it; its number and size may be
  // wrong.
  void HandOver() {
    auto memory = *SharedMemory::Create(kRegionBytes);
    const std::string bytes = input_.Text();
    std::memcpy(memory->data(), bytes.data(),
                std::min(bytes.size(), kRegionBytes));
    ShmRegion region;
    region.id = regions_.size() + 1;
    region.bytes = kRegionBytes;
    const uint8_t how = input_.Byte();
    if (how >= 240) {
      region.id = input_.Number();
      region.bytes = input_.Number();
    }
    Send(RecordBytes(&region), how == 239 ? -1 : memory->fd());
    regions_.push_back(std::move(memory));
  }

  void Request() {
    ShmRequest head;
    const uint8_t how = input_.Byte();
    head.kind = how < 250 ? 1 + (how & 3) : input_.Number();
    head.pin = input_.Number();
    const std::string chunk = Chunk(head.kind);
    std::string payload;
    if ((how & 4) == 0) {
      payload = std::string(size_t{32} * input_.Byte(), '\0');
      head.payload.bytes = payload.size();
    } else {
      head.payload = Place();
    }
    if ((how & 24) == 24) {
      head.chunk = Place();
    }
    WriteShm(&channel_, head, chunk, payload).status().IgnoreError();
  }

  // In memory that was handed over, as the ps would wait long for any other.
  ShmPlace Place() {
    ShmPlace place;
    place.region = regions_.empty() ? 0 : 1 + input_.Byte() % regions_.size();
    place.offset = input_.Number();
    place.bytes = input_.Number();
    return place;
  }

  std::string Chunk(uint64_t kind) {
    const uint8_t how = input_.Byte();
    if (how >= 224) {
      return input_.Text();
    }
    if (kind == ShmRequest::kChunk) {
      GradientChunk chunk;
      *chunk.mutable_sender() = ps_.sender();
      chunk.set_block(input_.Number32());
      if ((how & 1) != 0) {
        chunk.mutable_push()->set_sequence(input_.Number());
      }
      if ((how & 2) != 0) {
        chunk.set_block_count(input_.Number32());
      }
      if ((how & 4) != 0) {
        chunk.mutable_want()->set_latest(true);
        chunk.mutable_want()->set_encoding(
            static_cast<Encoding>((how >> 3) % 6));
      }
      return chunk.SerializeAsString();
    }
    PushRowsChunk chunk;
    *chunk.mutable_sender() = ps_.sender();
    chunk.mutable_push()->set_sequence(input_.Number());
    chunk.set_last((how & 1) != 0);
    IdList* const list = chunk.add_list();
    list->set_count(how & 7);
    list->set_deltas(input_.Bytes(how & 7));
    if (kind == ShmRequest::kPushRows) {
      return chunk.SerializeAsString();
    }
    PullRowsChunk pull;
    *pull.mutable_sender() = ps_.sender();
    pull.mutable_want()->set_latest(true);
    pull.set_train((how & 8) != 0);
    *pull.add_list() = *list;
    return pull.SerializeAsString();
  }

  // Answers, and releases of their pins.
  void Read() {
    std::string message;
    while (*channel_.TryRead(&message)) {
      ShmAnswer answer;
      std::span<const char> chunk;
      std::span<const char> payload;
      WEIR_CHECK(ParseShm(message, &answer, &chunk, &payload).ok());
      ShmRequest release;
      release.kind = ShmRequest::kRelease;
      release.pin = answer.pin;
      if (release.pin != 0) {
        WriteShm(&channel_, release, "", {}).status().IgnoreError();
      }
    }
  }

  // The counter of what was written, and some bytes of the ring.
  void Corrupt() {
    const uint64_t written = input_.Number();
    const std::string bytes = input_.Text();
    std::memcpy(memory_->data() + kWrittenAt + 384, bytes.data(),
                std::min<size_t>(bytes.size(), 4096));
    std::memcpy(memory_->data() + kWrittenAt, &written, sizeof(written));
    channel_.TryWrite({}, {});
  }

  // Gives the ps time to read what was written, unless it does not any more.
  // The deadline is for counters that this client has damaged.
  void WaitUntilRead() {
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
    const auto counter = [this](size_t at) {
      uint64_t value = 0;
      std::memcpy(&value, memory_->data() + kWrittenAt + at, sizeof(value));
      return value;
    };
    while (!ended_ && counter(0) != counter(64) &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
  }

  Ps& ps_;
  FuzzInput& input_;
  UnixSocket socket_;
  const std::shared_ptr<ShmSession> session_;
  const std::shared_ptr<SharedMemory> memory_;
  SharedChannel channel_;
  std::vector<std::shared_ptr<SharedMemory>> regions_;
  std::atomic<bool> ended_{false};  // the session, by the ps
  std::thread server_;
};

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const ps = new weir::Ps();
  weir::FuzzInput input(data, size);
  weir::Client(ps, &input).Run();
  return 0;
}
