#include "server/ps/value_call.h"

#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/half.h"
#include "proto/chunk_codec.h"

namespace weir {
namespace {

// The message for `header` and `values`: f32 is lent from the block, the
// 16-bit encodings from a buffer of their own.
grpc::ByteBuffer EncodeValues(const ValueChunk& header,
                              const BlockRef& values) {
  if (!values) {
    return EncodeMessage(header);
  }
  if (header.encoding() == F32) {
    const std::span<const char> bytes(
        reinterpret_cast<const char*>(values.data()), values.bytes());
    return EncodeChunk(header, bytes, [values] {});
  }
  const auto count = static_cast<size_t>(values.elements());
  std::shared_ptr<char[]> converted(new char[2 * count]);
  if (header.encoding() == BF16) {
    FloatsToBf16(values.data(), count, converted.get());
  } else {
    FloatsToF16(values.data(), count, converted.get());
  }
  return EncodeChunk(header, {converted.get(), 2 * count}, [converted] {});
}

}  // namespace

ValueCall::ValueCall(Store* store, CallQueue* queue)
    : store_(store),
      queue_(queue),
      on_written_([this](bool ok) { OnWritten(ok); }),
      on_finished_([](bool) {}),
      on_call_done_([this](bool) { OnCallDone(); }) {
  context_.AsyncNotifyWhenDone(on_call_done_.tag());
}

void ValueCall::Begin() { queue_->Start(&on_call_done_, shared_from_this()); }

void ValueCall::Ask(Question question) {
  const Encoding encoding = question.want.encoding();
  if (encoding != F32 && encoding != BF16 && encoding != F16) {
    Fail(absl::InvalidArgumentError(
        absl::StrCat("want.encoding ", encoding, " is not known")));
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

void ValueCall::Acknowledge(uint32_t block, uint32_t block_count,
                            const Receipt& receipt) {
  auto question = std::make_shared<Question>();
  question->unwritten = 1;
  Answer answer{std::move(question), ValueChunk(), BlockRef()};
  answer.header.set_incarnation(store_->incarnation());
  answer.header.set_block(block);
  answer.header.set_block_count(block_count);
  *answer.header.mutable_receipt() = receipt;
  {
    MutexLock lock(&mutex_);
    ready_.push_back(std::move(answer));
  }
  WriteNext();
}

bool ValueCall::TakeNextWant(std::shared_ptr<Question>* question,
                             uint32_t* block) {
  MutexLock lock(&mutex_);
  if (final_.has_value() || client_gone_ || questions_.empty() ||
      ready_.size() >= kReadyMax || parked_ >= kParkedMax) {
    pumping_ = false;
    return false;
  }
  *question = questions_.front();
  const uint64_t index = (*question)->asked++;
  *block = (*question)->listed.empty()
               ? static_cast<uint32_t>((*question)->first + index)
               : (*question)->listed[index];
  if ((*question)->asked == (*question)->count) {
    questions_.pop_front();
  }
  ++parked_;
  return true;
}

// Asks the store for wants until enough answers are ready. One thread at a
// time: a want that holds at once comes back here from inside store_->Pull.
void ValueCall::Pump() {
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

void ValueCall::OnPulled(const std::shared_ptr<Question>& question,
                         absl::StatusOr<PulledBlock> pulled) {
  absl::Status failure = pulled.status();
  if (pulled.ok() && pulled->not_yet && question->not_yet_fails) {
    failure = absl::DeadlineExceededError(absl::StrCat(
        "block ", pulled->block, ": what was wanted did not come in time"));
  }
  {
    MutexLock lock(&mutex_);
    --parked_;
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
  WriteNext();
  Pump();
}

bool ValueCall::Finished() const {
  return no_more_questions_ && questions_.empty() && parked_ == 0 &&
         ready_.empty();
}

// Starts the next write, or the finish, if none is under way.
void ValueCall::WriteNext() {
  Answer answer;
  absl::Status status;
  void* tag = nullptr;
  {
    MutexLock lock(&mutex_);
    if (writing_ != nullptr || finish_started_ || client_gone_) {
      return;
    }
    if (!final_.has_value() && Finished()) {
      final_ = absl::OkStatus();
    }
    if (final_.has_value()) {
      finish_started_ = true;
      status = *final_;
      tag = queue_->Start(&on_finished_, shared_from_this());
    } else if (!ready_.empty()) {
      answer = std::move(ready_.front());
      ready_.pop_front();
      writing_ = answer.question;
      tag = queue_->Start(&on_written_, shared_from_this());
    } else {
      return;
    }
  }
  if (answer.question == nullptr) {
    StartFinish(status, tag);
    return;
  }
  StartWrite(EncodeValues(answer.header, answer.values), tag);
}

void ValueCall::OnWritten(bool ok) {
  bool answered = false;
  {
    MutexLock lock(&mutex_);
    answered = --writing_->unwritten == 0;
    writing_ = nullptr;
    if (!ok) {
      client_gone_ = true;
      ready_.clear();
      questions_.clear();
    }
  }
  WriteNext();
  Pump();
  if (answered) {
    OnAnswered();
  }
}

void ValueCall::OnCallDone() {
  if (!context_.IsCancelled()) {
    return;  // finished in order
  }
  MutexLock lock(&mutex_);
  client_gone_ = true;
  ready_.clear();
  questions_.clear();
}

void ValueCall::NoMoreQuestions() {
  {
    MutexLock lock(&mutex_);
    no_more_questions_ = true;
  }
  WriteNext();
}

void ValueCall::Fail(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (!final_.has_value()) {
      final_ = status;
      ready_.clear();
      questions_.clear();
    }
  }
  WriteNext();
}

bool ValueCall::ended() const {
  MutexLock lock(&mutex_);
  return final_.has_value() || client_gone_;
}

}  // namespace weir
