#include "client/cc/parameters/row_exchange.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/wire/value_encoding.h"

namespace weir {
namespace {

// Lists that are remembered for each shard. It bounds this side's memory only:
// the shard bounds its own by bytes, and says when it has forgotten a list.
constexpr size_t kKnownMax = 4096;

}  // namespace

void KnownLists::MarkKnown(RowPiece* piece) const {
  for (RowPart& part : piece->parts) {
    part.known = known_.contains({part.name, part.table});
  }
}

void KnownLists::Add(const RowPiece& piece) {
  for (const RowPart& part : piece.parts) {
    if (known_.size() >= kKnownMax) {
      known_.clear();  // costs one list each, the next time
    }
    known_.insert({part.name, part.table});
  }
}

void KnownLists::Remove(const RowPiece& piece) {
  for (const RowPart& part : piece.parts) {
    known_.erase({part.name, part.table});
  }
}

// -------------------------------------------------------------------- pull

void RowPullExchange::Start(std::vector<RowPiece> pieces) {
  NoteWork();
  pieces_ = std::move(pieces);
  left_ = pieces_.size();
  version_ = ~uint64_t{0};
  in_flight_ = 0;
  unsent_.clear();
  for (uint32_t i = 0; i < pieces_.size(); ++i) {
    unsent_.push_back(i);
  }
}

void RowPullExchange::GiveUp() {
  left_ = 0;
  unsent_.clear();
}

RowPullExchange::Action RowPullExchange::Next() {
  Action action;
  if (NextOfConnection(false, false, &action) || done()) {
    return action;
  }
  if (!unsent_.empty() && in_flight_ < kInFlightMax) {  // I2
    action.kind = Step::kSend;
    action.request = unsent_.front();
    action.piece = &pieces_[action.request];
    unsent_.pop_front();
    ++in_flight_;
    action.piece->sent = true;
    lists_->MarkKnown(action.piece);
    return action;
  }
  action.kind = Step::kReceive;
  return action;
}

void RowPullExchange::OnStreamEnd(const absl::Status& status) {
  in_flight_ = 0;
  if (!Broken(status)) {
    return;
  }
  // I1: the answers went with the stream.
  for (uint32_t i = 0; i < pieces_.size() && !done(); ++i) {
    if (pieces_[i].sent) {
      pieces_[i].sent = false;
      unsent_.push_back(i);
    }
  }
  CheckLost();  // a shard that ends every stream at once is lost as well
}

const RowPiece* RowPullExchange::OnAnswer(const RowChunk& answer,
                                          size_t payload_bytes) {
  if (!Heard(answer.incarnation()) || done()) {
    return nullptr;
  }
  // The number comes from the ps; an answer to nothing must not write rows.
  if (answer.request() >= pieces_.size() || !pieces_[answer.request()].sent) {
    Fail(absl::InternalError(absl::StrCat("answered request ", answer.request(),
                                          " of ", pieces_.size())));
    return nullptr;
  }
  RowPiece& piece = pieces_[answer.request()];
  piece.sent = false;
  --in_flight_;
  if (answer.unknown_list()) {
    lists_->Remove(piece);  // I4: the shard does not keep them any more
  }
  if (answer.not_yet() || answer.unknown_list()) {
    unsent_.push_back(answer.request());
    return nullptr;
  }
  const auto floats = static_cast<size_t>(piece.floats);
  // The encoding is the ps's word as well: it may be one that rows never have.
  if (!IsFixedSize(answer.encoding())) {
    Fail(absl::InternalError(
        absl::StrCat("answered in encoding ", int{answer.encoding()})));
    return nullptr;
  }
  if (payload_bytes != EncodedBytes(answer.encoding(), floats)) {
    Fail(absl::InternalError(absl::StrCat("answered with ", payload_bytes,
                                          " bytes for ", floats, " floats")));
    return nullptr;
  }
  storing_ = &piece;
  return storing_;
}

void RowPullExchange::OnStored(uint64_t version) {
  lists_->Add(*storing_);
  storing_ = nullptr;
  version_ = std::min(version_, version);
  if (!done()) {  // else it was given up meanwhile
    --left_;
  }
}

// -------------------------------------------------------------------- push

void RowPushExchange::Start(std::vector<RowPiece> pieces) {
  pieces_ = std::move(pieces);
  done_ = false;
}

Exchange::Step RowPushExchange::Next() {
  Step step;
  if (NextOfConnection(false, false, &step) || done_) {
    return step;
  }
  if (now_ns() < deferred_until_ns_) {
    step.kind = Step::kSleep;
    step.until_ns = deferred_until_ns_;
    return step;
  }
  step.kind = Step::kSend;  // I3: until done_ is set by a receipt
  for (RowPiece& piece : pieces_) {
    lists_->MarkKnown(&piece);
  }
  return step;
}

void RowPushExchange::OnReply(const PushRowsReply& reply) {
  if (!Heard(reply.incarnation())) {
    return;
  }
  if (reply.unknown_list()) {
    // I4: the reply does not say which list the shard has forgotten, so all
    // are sent again.
    lists_->Clear();
    return;
  }
  for (const RowPiece& piece : pieces_) {
    lists_->Add(piece);  // the shard had or took each
  }
  if (reply.receipt().outcome() == Receipt::DEFERRED) {
    deferred_until_ns_ = now_ns() + kDeferPauseNs;
    return;
  }
  reply_ = reply;
  done_ = true;
}

}  // namespace weir
