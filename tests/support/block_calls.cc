#include "tests/support/block_calls.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace weir {

absl::StatusOr<PushedBlocks> PushBlocks(
    DataLink* link, const ChunkSource<GradientChunk>& next) {
  PushedBlocks pushed;
  const std::unique_ptr<PushPullStream> stream = link->OpenPushPull();
  GradientChunk header;
  std::span<const char> payload;
  while (next(&header, &payload)) {
    // A stream that has broken tells why at the next Receive as well.
    stream->Send(header, payload, nullptr).IgnoreError();
    ValueChunk answer;
    Payload nothing;
    WEIR_RETURN_IF_ERROR(stream->Receive(&answer, &nothing));
    pushed.incarnation = answer.incarnation();
    const uint32_t blocks = std::max(header.block_count(), 1u);
    if (answer.receipt().outcome() == Receipt::ACCEPTED) {
      pushed.accepted += blocks;
    } else if (answer.receipt().outcome() == Receipt::DUPLICATE) {
      pushed.duplicate += blocks;
    } else if (answer.receipt().outcome() == Receipt::LEFT_OUT) {
      pushed.left_out.push_back(header.block());
    }
    payload = {};
  }
  return pushed;
}

absl::Status PullBlocks(
    DataLink* link, const Sender& sender, const Want& want, int count,
    const std::function<void(const ValueChunk&, const Payload&)>& chunk) {
  if (count == 0) {
    return absl::OkStatus();
  }
  const std::unique_ptr<PushPullStream> stream = link->OpenPushPull();
  GradientChunk ask;
  *ask.mutable_sender() = sender;
  *ask.mutable_want() = want;
  ask.set_block_count(static_cast<uint32_t>(count));
  stream->Send(ask, {}, nullptr).IgnoreError();
  for (int i = 0; i < count; ++i) {
    ValueChunk header;
    Payload payload;
    WEIR_RETURN_IF_ERROR(stream->Receive(&header, &payload));
    if (header.not_yet()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "block ", header.block(), ": what was wanted did not come in time"));
    }
    chunk(header, payload);
  }
  return absl::OkStatus();
}

}  // namespace weir
