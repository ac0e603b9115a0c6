#include "server/ps/service/answer_flow.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/failpoint.h"
#include "common/base/status.h"
#include "proto/wire/value_encoding.h"

namespace weir {

absl::Status AnswerFlow::Take(GradientChunk chunk, Payload payload) {
  Failpoint("ps.recv");
  // The push comes before its want: a want for the next version would wait for
  // this very push.
  Question question;
  if (chunk.has_push()) {
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
  auto question = std::make_shared<Question>();
  question->unwritten = 1;
  Answer answer{std::move(question), ValueChunk(), BlockRef()};
  answer.header.set_incarnation(store_->incarnation());
  answer.header.set_block(chunk.block());
  answer.header.set_block_count(chunk.block_count());
  *answer.header.mutable_receipt() = receipt;
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
  absl::Status failure = pulled.status();
  if (pulled.ok() && pulled->not_yet && question->not_yet_fails) {
    failure = absl::DeadlineExceededError(absl::StrCat(
        "block ", pulled->block, ": what was wanted did not come in time"));
  }
  {
    MutexLock lock(&mutex_);
    --parked_;
    // I2: otherwise the values go with `pulled`, at the end of this call.
    if (failure.ok() && !final_.has_value() && !client_gone_) {
      Answer answer{question, ValueChunk(), std::move(pulled->values)};
      answer.header.set_incarnation(store_->incarnation());
      answer.header.set_block(static_cast<uint32_t>(pulled->block));
      answer.header.set_block_count(question->block_count);
      answer.header.set_version(pulled->version);
      answer.header.set_not_yet(pulled->not_yet);
      answer.header.set_encoding(question->want.encoding());
      if (question->receipt.has_value()) {
        *answer.header.mutable_receipt() = *question->receipt;
      }
      ready_.push_back(std::move(answer));
    }
  }
  if (!failure.ok()) {
    Fail(failure);
    return;
  }
  WriteReady();
  Pump();
}

bool AnswerFlow::Finished() const {
  return no_more_questions_ && questions_.empty() && parked_ == 0 &&
         ready_.empty();
}

// Hands on what may leave: answers, or the end.
void AnswerFlow::WriteReady() {
  for (;;) {
    Answer answer;
    absl::Status status;
    {
      MutexLock lock(&mutex_);
      if (finish_started_ || client_gone_) {
        return;
      }
      if (!final_.has_value() && Finished()) {
        final_ = absl::OkStatus();
      }
      if (final_.has_value()) {
        // I1: gRPC takes no finish beside a write. The last OnWritten comes
        // back here.
        if (under_way_ > 0) {
          return;
        }
        finish_started_ = true;
        status = *final_;
        Reserve(/*finish=*/true);
      } else if (!ready_.empty() && under_way_ < window_) {
        ++under_way_;
        Reserve(/*finish=*/false);
        answer = std::move(ready_.front());
        ready_.pop_front();
      } else {
        return;
      }
    }
    // Without the lock: Write may report at once, on this very stack.
    if (answer.question == nullptr) {
      Finish(status);
      return;
    }
    Write(std::move(answer));
  }
}

void AnswerFlow::OnWritten(const std::shared_ptr<Question>& question, bool ok) {
  bool answered = false;
  {
    MutexLock lock(&mutex_);
    --under_way_;
    answered = --question->unwritten == 0;
    if (!ok) {
      client_gone_ = true;
      Drop();
    }
  }
  WriteReady();
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
  MutexLock lock(&mutex_);
  client_gone_ = true;
  Drop();
}

void AnswerFlow::NoMoreQuestions() {
  {
    MutexLock lock(&mutex_);
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
  return final_.has_value() || client_gone_;
}

}  // namespace weir
