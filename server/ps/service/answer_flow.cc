#include "server/ps/service/answer_flow.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/exhausted.h"
#include "common/base/failpoint.h"
#include "common/base/plant.h"
#include "common/base/status.h"
#include "common/io/crc32c.h"
#include "common/trace/trace.h"
#include "proto/wire/value_encoding.h"

namespace weir {

const google::protobuf::MessageLite* AnswerFlow::Answer::message() const {
  if (const auto* values_header = std::get_if<ValueChunk>(&header)) {
    return values_header;
  }
  if (const auto* rows_header = std::get_if<RowChunk>(&header)) {
    return rows_header;
  }
  if (std::holds_alternative<std::monostate>(header)) {
    return nullptr;
  }
  return std::get<std::unique_ptr<google::protobuf::MessageLite>>(header).get();
}

void AnswerFlow::CountReceived(const Payload& payload) {
  payloads_->received.fetch_add(payload.bytes(), std::memory_order_relaxed);
}

absl::Status AnswerFlow::Take(GradientChunk chunk, Payload payload) {
  Failpoint("ps.recv");
  // The push comes before its want: a want for the next version would wait for
  // this very push.
  Question question;
  if (chunk.has_push()) {
    CountReceived(payload);
    WEIR_ASSIGN_OR_RETURN(question.receipt,
                          store_->Push(chunk, std::move(payload)));
    Failpoint("ps.before_ack");
  }
  OnTaken();
  if (chunk.has_want()) {
    question.sender = std::move(*chunk.mutable_sender());
    question.want = std::move(*chunk.mutable_want());
    question.block_count = chunk.block_count();
    question.first = chunk.block();
    question.count = std::max(chunk.block_count(), 1u);
    Ask(std::move(question));
  } else if (chunk.has_push()) {
    Acknowledge(chunk, *question.receipt);
  } else {
    return absl::InvalidArgumentError(
        "a request of PushPull needs `push` or `want`");
  }
  return absl::OkStatus();
}

void AnswerFlow::Take(const PullRowsChunk& request) {
  OnTaken();
  Expect();
  PullRowsDone done = [self = shared_from_this(),
                       checksum = request.want().checksum()](
                          absl::StatusOr<PulledRows> pulled) {
    if (!pulled.ok()) {
      self->DeliverError(pulled.status());
      return;
    }
    pulled->header.set_incarnation(self->store_->incarnation());
    if (checksum && pulled->rows) {
      pulled->header.set_crc32c(Crc32c(pulled->rows.data(), pulled->bytes));
    }
    self->Deliver(Answer{nullptr, std::move(pulled->header),
                         std::move(pulled->rows), pulled->bytes});
  };
  store_->PullRows(request,
                   TracedWait("lookup", request.request(), std::move(done)));
}

absl::StatusOr<bool> AnswerFlow::Take(const PushRowsChunk& chunk,
                                      const Payload& payload, bool no_more) {
  Failpoint("ps.recv");
  if (row_push_ == nullptr) {
    row_push_ = std::make_shared<RowPush>(store_);
  }
  CountReceived(payload);
  if (absl::Status status = row_push_->Add(chunk, payload); !status.ok()) {
    row_push_.reset();  // a flow that has failed may live as long as its client
    return status;
  }
  OnTaken();
  if (!chunk.last()) {
    return false;
  }
  if (no_more) {
    NoMoreQuestions(/*expected=*/1);
  } else {
    Expect();
  }
  // The continuation keeps the push, and with it the shard, until the answer is
  // there.
  const std::shared_ptr<RowPush> push = std::move(row_push_);
  push->Apply(
      [self = shared_from_this(), push](absl::StatusOr<PushRowsReply> reply) {
        Failpoint("ps.before_ack");
        if (reply.ok()) {
          reply->set_incarnation(self->store_->incarnation());
        }
        self->DeliverReply(std::move(reply));
      });
  return true;
}

void AnswerFlow::Ask(Question question) {
  const Encoding encoding = question.want.encoding();
  if (!IsFixedSize(encoding)) {
    Fail(absl::InvalidArgumentError(
        absl::StrCat("want.encoding ", static_cast<int>(encoding),
                     " is not one of F32, BF16, F16, INT8")));
    return;
  }
  if (question.count == 0) {
    return;  // a shard without blocks
  }
  question.unwritten = question.count;
  {
    MutexLock lock(&mutex_);
    questions_.push_back(std::make_shared<Question>(std::move(question)));
  }
  Pump();
}

void AnswerFlow::Acknowledge(const GradientChunk& chunk,
                             const Receipt& receipt) {
  ValueChunk header;
  header.set_incarnation(store_->incarnation());
  header.set_block(chunk.block());
  header.set_block_count(chunk.block_count());
  *header.mutable_receipt() = receipt;
  Add(Answer{nullptr, std::move(header)});
}

void AnswerFlow::Add(Answer&& answer) {
  {
    MutexLock lock(&mutex_);
    ready_.push_back(std::move(answer));
  }
  WriteReady();
}

bool AnswerFlow::TakeNextWant(std::shared_ptr<Question>* question,
                              uint32_t* block) {
  MutexLock lock(&mutex_);
  // I3. `pumping_` falls under the same lock as the look at the queues: whoever
  // changes them afterwards pumps by itself.
  if (final_.has_value() || client_gone_ || questions_.empty() ||
      ready_.size() >= kReadyMax || parked_ >= kParkedMax) {
    pumping_ = false;
    return false;
  }
  *question = questions_.front();
  const uint64_t index = (*question)->asked++;
  if ((*question)->listed.empty()) {
    *block = static_cast<uint32_t>((*question)->first + index);
  } else {
    *block = (*question)->listed[index];
  }
  if ((*question)->asked == (*question)->count) {
    questions_.pop_front();
  }
  ++parked_;
  return true;
}

// Asks the store for wants until enough answers are ready. One thread at a
// time: a want that holds at once comes back here from inside store_->Pull.
void AnswerFlow::Pump() {
  {
    MutexLock lock(&mutex_);
    if (pumping_) {
      return;
    }
    pumping_ = true;
  }
  std::shared_ptr<Question> question;
  uint32_t block = 0;
  while (TakeNextWant(&question, &block)) {
    store_->Pull(question->sender, static_cast<int>(block), question->want,
                 [self = shared_from_this(),
                  question](absl::StatusOr<PulledBlock> pulled) {
                   self->OnPulled(question, std::move(pulled));
                 });
  }
}

void AnswerFlow::OnPulled(const std::shared_ptr<Question>& question,
                          absl::StatusOr<PulledBlock> pulled) {
  if (!pulled.ok()) {
    DeliverError(pulled.status());
    return;
  }
  if (pulled->not_yet && question->not_yet_fails) {
    DeliverError(absl::DeadlineExceededError(absl::StrCat(
        "block ", pulled->block, ": what was wanted did not come in time")));
    return;
  }
  Answer answer{question, ValueChunk(), std::move(pulled->values)};
  answer.may_change = pulled->may_change;
  auto& header = std::get<ValueChunk>(answer.header);
  header.set_incarnation(store_->incarnation());
  header.set_block(static_cast<uint32_t>(pulled->block));
  header.set_block_count(question->block_count);
  header.set_version(pulled->version);
  header.set_not_yet(pulled->not_yet);
  if (!pulled->has_buffers) {  // I4
    header.set_encoding(question->want.encoding());
  }
  if (question->receipt.has_value()) {
    *header.mutable_receipt() = *question->receipt;
  }
  Deliver(std::move(answer));
}

void AnswerFlow::Expect() {
  MutexLock lock(&mutex_);
  ++parked_;
}

void AnswerFlow::Deliver(Answer&& answer) {
  {
    MutexLock lock(&mutex_);
    --parked_;
    // I2: otherwise the caller drops the values.
    if (!final_.has_value() && !client_gone_) {
      ready_.push_back(std::move(answer));
    }
  }
  WriteReady();
  Pump();
}

void AnswerFlow::DeliverError(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    --parked_;
  }
  Fail(status);
}

// Blocks come from the store as float32, rows as they were wanted.
void AnswerFlow::Encode(Answer* answer) const {
  auto* const header = std::get_if<ValueChunk>(&answer->header);
  if (header == nullptr || !answer->values) {
    return;
  }
  const auto count = static_cast<size_t>(answer->values.elements());
  answer->bytes = EncodedBytes(header->encoding(), count);
  const bool checksum = answer->question->want.checksum();
  // I5: the transport reads the values after the checksum is taken.
  if (header->encoding() != F32 || (checksum && answer->may_change)) {
    BlockRef encoded = BlockRef::Make(
        arena_, static_cast<int64_t>((answer->bytes + 3) / sizeof(float)));
    EncodeFloats(answer->values.data(), count, header->encoding(),
                 reinterpret_cast<char*>(encoded.data()));
    answer->values = std::move(encoded);
  }
  if (checksum) {
    header->set_crc32c(Crc32c(answer->values.data(), answer->bytes));
  }
}

bool AnswerFlow::Finished() const {
  return no_more_questions_ && questions_.empty() && parked_ == 0 &&
         ready_.empty();
}

// The next answer that may leave; it counts as under way.
std::optional<AnswerFlow::Answer> AnswerFlow::TakeReady() {
  MutexLock lock(&mutex_);
  if (finish_started_ || client_gone_ || final_.has_value() || ready_.empty() ||
      under_way_ == window_) {
    return std::nullopt;
  }
  std::optional<Answer> answer = std::move(ready_.front());
  ready_.pop_front();
  ++under_way_;
  return answer;
}

// Hands on what may leave: answers, or the end.
void AnswerFlow::WriteReady() {
  for (;;) {
    std::optional<Answer> answer = TakeReady();
    absl::Status status;
    bool last = false;
    if (answer.has_value()) {
      // Before anything is promised to the transport: there may be no memory
      // for it, and the flow can still end with that.
      status = OrExhausted([&] {
        Encode(&*answer);
        return absl::OkStatus();
      });
    }
    {
      MutexLock lock(&mutex_);
      if (!status.ok() && !final_.has_value()) {
        final_ = status;
        Drop();
      }
      // I2: what is in hand is void then.
      const bool failed = final_.has_value() && !final_->ok();
      if (answer.has_value() && (failed || client_gone_)) {
        answer.reset();
        --under_way_;
      }
      if (finish_started_ || client_gone_) {
        return;
      }
      // An answer and the end of the call leave together if they can.
      last = answer.has_value() && under_way_ == 1 && Finished();
      if (!final_.has_value() && Finished()) {
        final_ = absl::OkStatus();
      }
      // I1: gRPC takes no finish beside a write. The last OnWritten comes back
      // here.
      if (!answer.has_value() && (!final_.has_value() || under_way_ > 0)) {
        return;
      }
      finish_started_ = last || !answer.has_value();
      if (finish_started_) {
        status = *final_;
      }
      Reserve(finish_started_);
    }
    // Without the lock: Write may report at once, on this very stack.
    if (!answer.has_value()) {
      Finish(status);
      return;
    }
    payloads_->sent.fetch_add(answer->bytes, std::memory_order_relaxed);
    const TraceSpan span("answer");
    Write(*std::move(answer), last);
  }
}

void AnswerFlow::OnWritten(const std::shared_ptr<Question>& question, bool ok) {
  bool answered = false;
  {
    MutexLock lock(&mutex_);
    --under_way_;
    answered = question == nullptr || --question->unwritten == 0;
    if (!ok) {
      client_gone_ = true;
      Drop();
    }
  }
  if (!Planted("flow.writes_once")) {
    WriteReady();
  }
  Pump();
  if (answered) {
    OnAnswered();
  }
}

// I2. What is parked stays in the store, and comes to nothing in OnPulled.
void AnswerFlow::Drop() {
  ready_.clear();
  questions_.clear();
}

void AnswerFlow::ClientGone() {
  row_push_.reset();
  MutexLock lock(&mutex_);
  client_gone_ = true;
  Drop();
}

void AnswerFlow::NoMoreQuestions(size_t expected) {
  {
    MutexLock lock(&mutex_);
    parked_ += expected;
    no_more_questions_ = true;
  }
  WriteReady();
}

void AnswerFlow::Fail(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    // The first error is the cause; what follows are its consequences.
    if (!final_.has_value()) {
      final_ = status;
      Drop();
    }
  }
  WriteReady();
}

bool AnswerFlow::ended() const {
  MutexLock lock(&mutex_);
  return final_.has_value() || client_gone_ || no_more_questions_;
}

}  // namespace weir
