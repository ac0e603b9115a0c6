#include "client/cc/parameters/shard_exchange.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/plant.h"
#include "proto/wire/value_encoding.h"

namespace weir {
namespace {

// Whether the answer may have to wait until other workers have pushed.
bool MayPark(const Want& want) {
  return want.when_case() == Want::kVersion || want.clock() > 0;
}

}  // namespace

ShardExchange::ShardExchange(Options options)
    : Exchange(options),
      options_(std::move(options)),
      blocks_(options_.elements.size()) {}

void ShardExchange::StartWants(const Sender& sender, const Want& want,
                               bool at_once) {
  NoteWork();
  SetWant(sender, want);
  for (int block = 0; block < wants_left_; ++block) {
    const PushState push = blocks_[block].push;
    // I5: asked for before its own push, a block would come without it. With
    // the gate closed the wait would never end, since pushes wait for values.
    if (gate_open_ && !at_once &&
        (push == PushState::kPending || push == PushState::kReady)) {
      blocks_[block].want = WantState::kWithPush;
      ++wants_with_push_;
    } else {
      QueueWant(block);
    }
  }
}

void ShardExchange::QueueWant(int block) {
  blocks_[block].want = WantState::kQueued;
  wants_queued_.insert(block);
}

void ShardExchange::SetWant(const Sender& sender, const Want& want) {
  WEIR_CHECK(wants_left_ == 0);
  want_sender_ = sender;
  want_ = want;
  if (want_.timeout_ms() == 0) {
    want_.set_timeout_ms(want_timeout_ms());
  }
  wants_left_ = static_cast<int>(blocks_.size());
}

void ShardExchange::WantWithContribution(const Want& want) {
  SetWant(sender_, want);
  wants_with_push_ = wants_left_;
  for (Block& block : blocks_) {
    // I5: none has left, so each can still take its want along.
    WEIR_CHECK(block.push == PushState::kPending ||
               block.push == PushState::kReady);
    block.want = WantState::kWithPush;
  }
}

void ShardExchange::BeginContribution(const Sender& sender, const Push& push) {
  WEIR_CHECK(contribution_done());
  sender_ = sender;
  push_ = push;
  receipts_ = {};
  for (Block& block : blocks_) {
    block.push = PushState::kPending;
    block.base_version = block.version;  // I6
  }
  blocks_unsent_ = blocks_unacknowledged_ = static_cast<int>(blocks_.size());
}

void ShardExchange::BlockReady(int block, bool payload,
                               std::vector<uint32_t> left_out) {
  Block& b = blocks_[block];
  WEIR_CHECK(b.push == PushState::kPending);
  NoteWork();
  b.push = PushState::kReady;
  b.payload = payload;
  b.left_out = std::move(left_out);
  ++blocks_open_;
  ready_.insert(block);  // I4: a set, by order
}

ShardExchange::Action ShardExchange::Next(bool sending, bool receiving) {
  Action action;
  if (NextOfConnection(sending, receiving, &action)) {
    return action;
  }
  if (!deferred_.empty() && now_ns() >= deferred_until_ns_) {
    for (const int block : deferred_) {
      blocks_[block].push = PushState::kReady;
      ready_.insert(block);
    }
    deferred_.clear();
  }
  if (!sending) {
    // Pushes first: others may wait for them, and an open want only waits.
    if (PushMayGo()) {
      return SendPush();
    }
    if (WantMayGo()) {
      return SendWant();
    }
  }
  if (!receiving && !requests_.empty()) {
    action.kind = Action::kReceive;
  } else if (!deferred_.empty()) {
    action.kind = Action::kSleep;
    action.until_ns = deferred_until_ns_;
  }
  return action;
}

bool ShardExchange::PushMayGo() const {
  if (ready_.empty() || !gate_open_ ||
      requests_.size() >= kInFlightRequestsMax) {  // I3
    return false;
  }
  const int first = *ready_.begin();
  int64_t bytes = 0;  // a block that is left out whole travels as a header
  if (blocks_[first].payload) {
    bytes = options_.elements[first] * 4;
  }
  // I2: the first condition lets a block through that is larger than the bound.
  return in_flight_bytes_ == 0 ||
         in_flight_bytes_ + bytes <= options_.in_flight_bytes_max;
}

bool ShardExchange::WantMayGo() const {
  // I3: the requests above kWantRequestsMax are left to pushes.
  return !wants_queued_.empty() && requests_.size() < kWantRequestsMax &&
         WantHasRoom(*wants_queued_.begin());
}

ShardExchange::Action ShardExchange::SendPush() {
  Action action;
  action.kind = Action::kSend;
  const int first = *ready_.begin();
  const bool payload = blocks_[first].payload;
  const uint64_t base_version = blocks_[first].base_version;
  // Blocks without a payload go in one header, as many as lie side by side and
  // agree in what the header says. A block with a payload goes alone.
  int count = 0;
  for (int block = first; block < static_cast<int>(blocks_.size()); ++block) {
    Block& b = blocks_[block];
    if (b.push != PushState::kReady || b.payload != payload ||
        b.base_version != base_version) {
      break;
    }
    b.push = PushState::kSent;
    b.push_request = next_request_;
    ready_.erase(block);
    if (b.want == WantState::kWithPush) {
      --wants_with_push_;
      // In one request, if the values are there at once: one answer brings
      // receipt and values. Else the receipt must not wait for the values.
      if (payload && !MayPark(want_)) {
        b.want = WantState::kSent;
        b.want_request = next_request_;
        wanted_bytes_ += options_.elements[block] * 4;
        *action.header.mutable_want() = want_;
      } else {
        QueueWant(block);
      }
    }
    ++count;
    if (payload) {
      break;
    }
  }
  blocks_unsent_ -= count;
  GradientChunk& header = action.header;
  *header.mutable_sender() = sender_;
  *header.mutable_push() = push_;
  header.mutable_push()->set_base_version(base_version);  // I6
  header.set_block(static_cast<uint32_t>(options_.first_block + first));
  action.block = first;
  if (payload) {
    for (const uint32_t variable : blocks_[first].left_out) {
      header.mutable_push()->add_left_out(variable);
    }
    in_flight_bytes_ += options_.elements[first] * 4;
    action.payload = true;
  } else {
    header.set_block_count(static_cast<uint32_t>(count));
  }
  requests_[next_request_++] = count;
  return action;
}

// I2. Values that may park are asked for without a bound: they come when the
// other workers have pushed, and under a bound the first block that is late
// would hold up those that are not.
bool ShardExchange::WantHasRoom(int block) const {
  return MayPark(want_) || wanted_bytes_ == 0 ||
         wanted_bytes_ + options_.elements[block] * 4 <=
             options_.in_flight_bytes_max;
}

ShardExchange::Action ShardExchange::SendWant() {
  Action action;
  action.kind = Action::kSend;
  const int first = *wants_queued_.begin();
  // One request asks for blocks that lie side by side.
  int count = 0;
  while (!wants_queued_.empty() && *wants_queued_.begin() == first + count &&
         WantHasRoom(first + count)) {
    Block& b = blocks_[first + count];
    b.want = WantState::kSent;
    b.want_request = next_request_;
    wanted_bytes_ += options_.elements[first + count] * 4;
    wants_queued_.erase(wants_queued_.begin());
    ++count;
  }
  *action.header.mutable_sender() = want_sender_;
  *action.header.mutable_want() = want_;
  action.header.set_block(static_cast<uint32_t>(options_.first_block + first));
  action.block = first;
  action.header.set_block_count(static_cast<uint32_t>(count));
  requests_[next_request_++] = count;
  return action;
}

void ShardExchange::OnStreamEnd(const absl::Status& status) {
  // Whatever was under way gets no answer on this stream any more.
  requests_.clear();
  in_flight_bytes_ = 0;
  wanted_bytes_ = 0;
  // OUT_OF_RANGE: the shard expects an earlier contribution for some block.
  // That may be this one, on a block whose push was lost, so everything without
  // a receipt is sent once more. If that does not settle it, nothing here does.
  const bool skipped =
      InstructionOf(status.code()) == Instruction::kResendOnce &&
      !contribution_done() && skipped_sequence_ != push_.sequence();
  if (skipped) {
    skipped_sequence_ = push_.sequence();
  }
  if (!Broken(status, skipped)) {
    return;
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = blocks_[i];
    const bool wanted =
        block.want == WantState::kSent || block.want == WantState::kQueued;
    if (block.push == PushState::kSent && !Planted("exchange.sends_once")) {
      // I1: whether the shard has taken it or not, the same identity makes the
      // repeat safe. I5: its want goes with it again.
      block.push = PushState::kReady;
      ++blocks_unsent_;
      ready_.insert(static_cast<int>(i));
      if (wanted) {
        wants_queued_.erase(static_cast<int>(i));
        block.want = WantState::kWithPush;
        ++wants_with_push_;
      }
    } else if (wanted) {
      QueueWant(static_cast<int>(i));
    }
  }
  CheckLost();  // a shard that ends every stream at once is lost as well
}

// One block of a request is answered; a request for several ends with the last.
void ShardExchange::Answered(uint32_t* request) {
  const auto it = requests_.find(*request);
  if (it != requests_.end() && --it->second == 0) {
    requests_.erase(it);
  }
  *request = 0;
}

int ShardExchange::OnAnswer(const ValueChunk& answer, size_t payload_bytes) {
  if (!Heard(answer.incarnation())) {
    return -1;
  }
  uint32_t count = 1;  // values come block by block, receipts for several
  if (answer.has_receipt()) {
    count = answer.block_count();
  }
  const auto first_block = static_cast<uint32_t>(options_.first_block);
  const size_t end = size_t{answer.block()} + std::max<uint32_t>(count, 1);
  if (answer.block() < first_block || end > first_block + blocks_.size()) {
    Fail(absl::InternalError(absl::StrCat("answered for block ", end - 1,
                                          " of [", first_block, ", ",
                                          first_block + blocks_.size(), ")")));
    return -1;
  }
  if (answer.has_receipt()) {
    OnReceipt(answer);
    if (payload_bytes == 0 && !answer.not_yet()) {
      return -1;  // the push had no want, so the receipt is all
    }
  }
  const int index = static_cast<int>(answer.block() - first_block);
  Block& block = blocks_[index];
  if (block.want != WantState::kSent) {
    return -1;  // nobody asked, or not on this stream
  }
  Answered(&block.want_request);
  wanted_bytes_ -= options_.elements[index] * 4;
  if (answer.not_yet()) {
    // The want parked until its timeout. Asked again, it shows the watch that
    // the shard is alive.
    QueueWant(index);
    return -1;
  }
  // A wrong size or version would be written over values that are right.
  // Blocks that hold buffers come as F32 whatever was wanted.
  Encoding encoding = want_.encoding();
  if (answer.encoding() == F32) {
    encoding = F32;
  }
  const size_t bytes_due =
      EncodedBytes(encoding, static_cast<size_t>(options_.elements[index]));
  if (answer.encoding() != encoding || payload_bytes != bytes_due ||
      (want_.when_case() == Want::kVersion &&
       answer.version() != want_.version())) {
    Fail(absl::InternalError(absl::StrCat(
        "answered block ", index, " with ", payload_bytes, " bytes of version ",
        answer.version(), "; wanted ", bytes_due)));
    return -1;
  }
  block.want = WantState::kCopying;
  return index;
}

void ShardExchange::OnReceipt(const ValueChunk& answer) {
  const Receipt& receipt = answer.receipt();
  const uint32_t count = std::max<uint32_t>(answer.block_count(), 1);
  uint64_t settled = 0;
  const uint32_t first =
      answer.block() - static_cast<uint32_t>(options_.first_block);
  for (uint32_t i = first; i < first + count; ++i) {
    Block& block = blocks_[i];
    if (block.push != PushState::kSent ||
        receipt.sequence() != push_.sequence()) {
      // I1: of an earlier try or contribution; that block is settled already.
      continue;
    }
    if (block.payload) {
      in_flight_bytes_ -= options_.elements[i] * 4;
    }
    Answered(&block.push_request);
    if (receipt.outcome() == Receipt::DEFERRED) {
      // The ps had no room to keep it until its turn (I1: so it goes again).
      block.push = PushState::kDeferred;
      ++blocks_unsent_;
      deferred_.push_back(static_cast<int>(i));
      deferred_until_ns_ = now_ns() + kDeferPauseNs;
      continue;
    }
    ++settled;
    block.push = PushState::kNone;
    --blocks_open_;
    --blocks_unacknowledged_;
  }
  if (settled > 0) {
    receipts_.AddReceipt(receipt, settled);
  }
}

void ShardExchange::OnStored(int block, uint64_t version) {
  WEIR_CHECK(blocks_[block].want == WantState::kCopying);
  blocks_[block].want = WantState::kNone;
  blocks_[block].version = version;
  if (!gate_open_) {
    // I6: with the gate closed these are values of the pull before the
    // contribution, which began too early to know their version.
    blocks_[block].base_version = version;
  }
  --wants_left_;
}

}  // namespace weir
