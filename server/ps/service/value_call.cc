#include "server/ps/service/value_call.h"

#include <span>
#include <utility>

#include "common/io/crc32c.h"
#include "proto/wire/chunk_codec.h"
#include "proto/wire/value_encoding.h"

namespace weir {
namespace {

// gRPC aborts the process on two writes at once.
constexpr size_t kWindow = 1;

// The message for `header` and `values`: F32 is lent from the block, other
// encodings from a buffer of their own.
grpc::ByteBuffer EncodeValues(ValueChunk header, const BlockRef& values,
                              bool checksum) {
  if (!values) {
    return EncodeMessage(header);
  }
  if (header.encoding() == F32) {
    const std::span<const char> bytes(
        reinterpret_cast<const char*>(values.data()), values.bytes());
    if (checksum) {
      header.set_crc32c(Crc32c(bytes.data(), bytes.size()));
    }
    // The empty function holds the reference until gRPC has sent the slice.
    return EncodeChunk(header, bytes, [values] {});
  }
  const auto count = static_cast<size_t>(values.elements());
  const size_t bytes = EncodedBytes(header.encoding(), count);
  std::shared_ptr<char[]> converted(new char[bytes]);
  EncodeFloats(values.data(), count, header.encoding(), converted.get());
  if (checksum) {
    header.set_crc32c(Crc32c(converted.get(), bytes));
  }
  return EncodeChunk(header, {converted.get(), bytes}, [converted] {});
}

}  // namespace

ValueCall::ValueCall(Store* store, CallQueue* queue)
    : AnswerFlow(store, kWindow),
      queue_(queue),
      on_written_([this](bool ok) { OnWritten(ok); }),
      on_finished_([](bool) {}),
      on_call_done_([this](bool) { OnCallDone(); }) {
  context_.AsyncNotifyWhenDone(on_call_done_.tag());
}

void ValueCall::Begin() { queue_->Start(&on_call_done_, shared_from_this()); }

// Under the lock, so that the queue knows of it before the call is done.
void ValueCall::Reserve(bool finish) {
  CallOperation* operation = &on_written_;
  if (finish) {
    operation = &on_finished_;
  }
  tag_ = queue_->Start(operation, shared_from_this());
}

void ValueCall::Write(Answer answer) {
  writing_ = std::move(answer.question);
  StartWrite(EncodeValues(std::move(answer.header), answer.values,
                          writing_->want.checksum()),
             tag_);
}

void ValueCall::Finish(const absl::Status& status) {
  StartFinish(status, tag_);
}

void ValueCall::OnWritten(bool ok) {
  AnswerFlow::OnWritten(std::exchange(writing_, nullptr), ok);
}

void ValueCall::OnCallDone() {
  // A call that ended as it should comes here as well, after its Finish.
  if (context_.IsCancelled()) {
    ClientGone();
  }
}

}  // namespace weir
