// A ps that answers its clients with anything, in any order: the decisions of a
// client (ShardExchange for blocks, RowPullExchange and RowPushExchange for
// rows) never fail a check of ours, and what they let through has the size of
// the memory that it is copied to.
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "client/cc/parameters/row_exchange.h"
#include "client/cc/parameters/shard_exchange.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "proto/wire/value_encoding.h"
#include "tests/fuzz/fuzz_input.h"

namespace weir {
namespace {

constexpr int kStepsMax = 256;
constexpr size_t kFloatsMax = 4096;  // of an answer that is decoded here

// As the client does it with what its exchange let through.
void Store(Encoding encoding, size_t payload_bytes, size_t floats) {
  WEIR_CHECK(floats <= kFloatsMax);
  const std::vector<char> bytes(payload_bytes);
  std::vector<float> values(floats);
  WEIR_CHECK(
      DecodeFloats(Payload::Borrowed(bytes), encoding, floats, values.data())
          .ok());
}

class HostilePs {
 public:
  explicit HostilePs(FuzzInput* input) : input_(*input) {}

  Exchange::ConnectionOptions Connection() {
    Exchange::ConnectionOptions options;
    options.shard = 1;
    options.address = "host:7";
    options.clock = &clock_;
    return options;
  }

  uint64_t Incarnation() { return input_.Byte() < 240 ? 5 : input_.Number(); }

  absl::Status Break() {
    return absl::Status(static_cast<absl::StatusCode>(1 + input_.Below(17)),
                        "the call ended");
  }

  // Lets time pass, and looks whether the shard is lost.
  void Wait(Exchange* exchange) {
    clock_.Advance(std::chrono::milliseconds(input_.Below(256) * 4));
    exchange->CheckLost();
  }

  FakeClock clock_;
  FuzzInput& input_;
};

class BlocksClient {
 public:
  explicit BlocksClient(FuzzInput* input)
      : ps_(input), input_(*input), exchange_(Options()) {}

  void Run() {
    for (int i = 0; i < kStepsMax && !input_.empty(); ++i) {
      if (exchange_.Next().kind == Exchange::Step::kFailed) {
        return;
      }
      Step();
    }
  }

 private:
  static constexpr int kBlocks = 4;
  static constexpr int kElements = 16;

  ShardExchange::Options Options() {
    ShardExchange::Options options;
    static_cast<Exchange::ConnectionOptions&>(options) = ps_.Connection();
    options.first_block = input_.Below(3);
    options.elements.assign(kBlocks, kElements);
    options.in_flight_bytes_max = int64_t{2} * kElements * 4;
    first_block_ = static_cast<uint32_t>(options.first_block);
    return options;
  }

  void Step() {
    switch (input_.Below(8)) {
      case 0:
        return Push();
      case 1:
        return Want();
      case 2:
      case 3:
        return Work();
      case 4:
      case 5:
      case 6:
        return Answer();
      default:
        if (input_.Flag()) {
          exchange_.OnStreamEnd(ps_.Break());
        } else {
          ps_.Wait(&exchange_);
        }
    }
  }

  // The next contribution, once the one before is settled.
  void Push() {
    if (!exchange_.contribution_done()) {
      return;
    }
    ::weir::Push push;
    push.set_sequence(sequence_++);
    exchange_.BeginContribution(Sender(), push);
    const uint8_t how = input_.Byte();
    if (exchange_.wants_left() == 0 && (how & 16) != 0) {
      ::weir::Want want;
      want.set_latest(true);
      exchange_.WantWithContribution(want);
    }
    for (int block = 0; block < kBlocks; ++block) {
      exchange_.BlockReady(block, ((how >> block) & 1) != 0, {});
    }
  }

  void Want() {
    if (exchange_.wants_left() > 0) {
      return;
    }
    ::weir::Want want;
    const uint8_t how = input_.Byte();
    if ((how & 1) != 0) {
      want.set_version(3);
    } else {
      want.set_latest(true);
    }
    want.set_encoding(static_cast<Encoding>((how >> 1) & 3));
    exchange_.StartWants(Sender(), want, (how & 8) != 0);
    exchange_.SetGate((how & 16) != 0);
  }

  // Does what there is to do, but for answers.
  void Work() {
    for (int i = 0; i < kBlocks; ++i) {
      const ShardExchange::Action action = exchange_.Next();
      if (action.kind == Exchange::Step::kConnect) {
        exchange_.OnConnected();
      } else if (action.kind == Exchange::Step::kSend && input_.Byte() > 250) {
        exchange_.OnSendFailed();
      }
    }
  }

  void Answer() {
    ValueChunk answer;
    answer.set_incarnation(ps_.Incarnation());
    const uint8_t how = input_.Byte();
    answer.set_block(how < 240 ? first_block_ + (how & 3) : input_.Number32());
    answer.set_version(input_.Number());
    answer.set_not_yet((how & 4) != 0);
    if ((how & 8) != 0) {
      answer.set_block_count(input_.Number32());
      Receipt* const receipt = answer.mutable_receipt();
      receipt->set_sequence(input_.Flag() ? sequence_ - 1 : input_.Number());
      receipt->set_outcome(static_cast<Receipt::Outcome>(input_.Below(6)));
      receipt->set_staleness(input_.Number());
    }
    answer.set_encoding(static_cast<Encoding>(input_.Below(6)));
    const size_t bytes = PayloadBytes(answer.encoding());
    const int block = exchange_.OnAnswer(answer, bytes);
    if (block >= 0) {
      WEIR_CHECK(block < kBlocks);
      Store(answer.encoding(), bytes, kElements);
      exchange_.OnStored(block, answer.version());
    }
  }

  // Mostly the right size.
  size_t PayloadBytes(Encoding encoding) {
    if (IsFixedSize(encoding) && input_.Byte() < 240) {
      return EncodedBytes(encoding, kElements);
    }
    return static_cast<size_t>(input_.Number() % (kFloatsMax * 4));
  }

  HostilePs ps_;
  FuzzInput& input_;
  uint32_t first_block_ = 0;
  ShardExchange exchange_;
  uint64_t sequence_ = 0;
};

class RowsClient {
 public:
  explicit RowsClient(FuzzInput* input)
      : ps_(input),
        input_(*input),
        pull_(ps_.Connection(), lists_),
        push_(ps_.Connection(), lists_) {}

  void Run() {
    for (int i = 0; i < kStepsMax && !input_.empty(); ++i) {
      if (pull_.Next().kind == Exchange::Step::kFailed ||
          push_.Next().kind == Exchange::Step::kFailed) {
        return;
      }
      Step();
    }
  }

 private:
  void Step() {
    switch (input_.Below(6)) {
      case 0:
        return Pull();
      case 1:
        return Push();
      case 2:
        return ps_.Wait(&pull_);
      case 3:
        return pull_.OnStreamEnd(ps_.Break());
      default:
        return Answer();
    }
  }

  std::vector<RowPiece> Pieces() {
    std::vector<RowPiece> pieces(1 + input_.Below(6));
    for (size_t i = 0; i < pieces.size(); ++i) {
      RowPart part;
      part.picked = {2 * i, 2 * i + 1};
      part.ids = part.picked;
      part.name = i + 1;
      pieces[i].floats = 2;
      pieces[i].parts.push_back(std::move(part));
    }
    return pieces;
  }

  void Pull() {
    if (pull_.done()) {
      pull_.Start(Pieces());
    }
    for (int i = 0; i < 4; ++i) {
      if (pull_.Next().kind == Exchange::Step::kConnect) {
        pull_.OnConnected();
      }
    }
  }

  void Push() {
    if (push_.done()) {
      push_.Start(Pieces());
    }
    if (push_.Next().kind == Exchange::Step::kConnect) {
      push_.OnConnected();
    }
    if (input_.Byte() > 224) {
      push_.OnCallEnd(ps_.Break(), input_.Flag());
      return;
    }
    PushRowsReply reply;
    reply.set_incarnation(ps_.Incarnation());
    reply.set_unknown_list(input_.Byte() > 192);
    reply.mutable_receipt()->set_outcome(
        static_cast<Receipt::Outcome>(input_.Below(6)));
    push_.OnReply(reply);
  }

  void Answer() {
    RowChunk answer;
    answer.set_incarnation(ps_.Incarnation());
    answer.set_request(input_.Number32());
    answer.set_version(input_.Number());
    const uint8_t how = input_.Byte();
    answer.set_not_yet((how & 3) == 3);
    answer.set_unknown_list((how & 12) == 12);
    answer.set_encoding(static_cast<Encoding>((how >> 4) % 6));
    const size_t bytes = input_.Below(32);
    const RowPiece* const piece = pull_.OnAnswer(answer, bytes);
    if (piece != nullptr) {
      Store(answer.encoding(), bytes, static_cast<size_t>(piece->floats));
      pull_.OnStored(answer.version());
    }
  }

  HostilePs ps_;
  FuzzInput& input_;
  const std::shared_ptr<KnownLists> lists_ = std::make_shared<KnownLists>();
  RowPullExchange pull_;
  RowPushExchange push_;
};

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::SetLogLevel(weir::LogLevel::kError);
  weir::FuzzInput input(data, size);
  if (input.Flag()) {
    weir::BlocksClient(&input).Run();
  } else {
    weir::RowsClient(&input).Run();
  }
  return 0;
}
