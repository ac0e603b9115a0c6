// What a process of this host writes into the memory that it shares: counters,
// lengths, messages and places. The reader, a ps or a client, never leaves the
// memory and splits a message into parts that lie inside it.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "common/base/check.h"
#include "common/io/shared_channel.h"
#include "common/io/shared_memory.h"
#include "proto/wire/shm_message.h"
#include "tests/fuzz/fuzz_input.h"

namespace weir {
namespace {

// Of one channel (common/io/shared_channel.h has the map): the rings' counters
// and where their bytes begin.
constexpr size_t kRingsBegin = 128;
constexpr size_t kRingStride = 192;
constexpr size_t kDataBegin = 512;
constexpr int kReadsMax = 64;

bool Inside(std::span<const char> part, std::span<const char> whole) {
  return part.empty() ||
         (part.data() >= whole.data() &&
          part.data() + part.size() <= whole.data() + whole.size());
}

template <typename Head>
void CheckMessage(const std::string& message, const SharedMemory& memory) {
  Head head;
  std::span<const char> chunk;
  std::span<const char> inline_payload;
  if (!ParseShm(message, &head, &chunk, &inline_payload).ok()) {
    return;
  }
  WEIR_CHECK(sizeof(head) + chunk.size() + inline_payload.size() ==
             message.size());
  WEIR_CHECK(Inside(chunk, message) && Inside(inline_payload, message));
  const auto bytes = BytesAt(memory, head.payload);
  if (bytes.ok()) {
    WEIR_CHECK(Inside(*bytes, {memory.data(), memory.bytes()}));
  }
}

// One for all inputs: it is large, and only what an input wrote is undone.
const std::shared_ptr<SharedMemory>& Memory() {
  static const auto* const memory = new std::shared_ptr<SharedMemory>(
      *SharedMemory::Create(SharedChannel::kMemoryBytes));
  return *memory;
}

// Reads as `side` what `input` says that the other side has written.
void Read(FuzzInput* input, SharedChannel::Side side) {
  SharedMemory& memory = *Memory();
  char* const ring =
      memory.data() + kDataBegin + (1 - side) * SharedChannel::kRingBytes;
  std::memset(memory.data(), 0, kDataBegin);
  SharedChannel channel(Memory(), side);
  std::string message;
  size_t filled = 0;
  for (int i = 0; i < kReadsMax && !input->empty(); ++i) {
    const uint64_t written = input->Number();
    std::memcpy(memory.data() + kRingsBegin + (1 - side) * kRingStride,
                &written, sizeof(written));
    const std::string bytes = input->Text();
    const size_t at =
        std::min<size_t>(input->Number() % SharedChannel::kRingBytes,
                         SharedChannel::kRingBytes - bytes.size());
    std::memcpy(ring + at, bytes.data(), bytes.size());
    filled = std::max(filled, at + bytes.size());
    const absl::StatusOr<bool> read = channel.TryRead(&message);
    if (!read.ok()) {
      WEIR_CHECK(absl::IsDataLoss(read.status()));
      break;
    }
    if (!*read) {
      continue;
    }
    WEIR_CHECK(message.size() <= SharedChannel::kMessageBytesMax);
    if (side == SharedChannel::kServer) {
      CheckMessage<ShmRequest>(message, memory);
    } else {
      CheckMessage<ShmAnswer>(message, memory);
    }
    // The way back, with whatever the other side says that it has read.
    channel.TryWrite(message, {});
  }
  std::memset(ring, 0, filled);
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::FuzzInput input(data, size);
  weir::Read(&input, input.Flag() ? weir::SharedChannel::kServer
                                  : weir::SharedChannel::kClient);
  return 0;
}
