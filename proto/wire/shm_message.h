// The messages of PushPull, PullRows and PushRows through shared memory.
//
// Place: both ends of the shared-memory transport, over
// common/io/shared_channel.h and common/io/unix_socket.h. The chunks are those
// of proto/ps.proto without their payloads; a ShmPlace beside each chunk says
// where its payload is.
//
// How a stream begins and ends: the client connects to HelloReply.shm_name and
// sends ShmOpening with the ticket of the same reply and the memory of the
// channel. The ps answers with ShmOpening and its arena, which the client may
// only read. ShmRegion brings memory of the client that later requests refer
// to; a region that is wrong ends the session. A side that closes its socket no
// longer uses the other's memory; the ps closes when the client has ended its
// sending side.
//
// Terms
//   inline    a payload of at most kShmInlineBytes, in the message itself.
//   pin       a number for values that the ps keeps in place until the client
//             sends a kRelease with it.
//   taken     requests whose payloads the ps has read, counted from the first.
//             Their memory may change again.
//   answered  those of the taken requests that have had their last answer. A
//             client keeps the others within kShmUnansweredMax.
//
// A message is the struct, then the chunk (protobuf), then the inline payload.
// A request's chunk that is long (ids of rows) is in the client's memory
// instead. Every request has an answer; a kPushRows that is not the last of its
// stream has kTaken.
// Errors: INVALID_ARGUMENT  the bytes are not such a message, or a place is
//                           outside its region.
#ifndef PROTO_WIRE_SHM_MESSAGE_H_
#define PROTO_WIRE_SHM_MESSAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/io/shared_channel.h"
#include "common/io/shared_memory.h"

namespace weir {

inline constexpr uint64_t kShmMagic = 0x336d687372696577;  // "weirshm3"
inline constexpr size_t kShmTicketBytes = 16;
inline constexpr size_t kShmInlineBytes = 4096;
// A request's chunk that is longer than the first of these is in the client's
// memory; the second one is gRPC's limit.
inline constexpr size_t kShmChunkBytes = 16384;
inline constexpr uint64_t kShmLongChunkBytes = 4 << 20;
inline constexpr uint64_t kShmUnansweredMax = 256;

struct ShmOpening {
  uint64_t magic = kShmMagic;
  uint64_t bytes = 0;  // of the memory that comes along
  // HelloReply.shm_ticket: who has it was admitted as a worker. In the ps's
  // answer zeros.
  std::array<char, kShmTicketBytes> ticket = {};
};

struct ShmRegion {
  uint64_t id = 0;  // from 1, in the order sent
  uint64_t bytes = 0;
};

// A ShmOpening or ShmRegion as the bytes of a socket's record.
template <typename Record>
std::span<char> RecordBytes(Record* record) {
  return {reinterpret_cast<char*>(record), sizeof(Record)};
}

// Where a payload is: `bytes` bytes at `offset` of the client's region `region`
// (in a request) or of the arena (in an answer). It is inline if `region` is 0.
struct ShmPlace {
  uint64_t region = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct ShmRequest {
  enum Kind : uint64_t {
    kChunk = 1,     // GradientChunk; ValueChunk comes back
    kRelease = 2,   // of `pin`
    kPullRows = 3,  // PullRowsChunk; RowChunk comes back
    kPushRows = 4,  // PushRowsChunk; PushRowsReply comes back, to the last
  };
  uint64_t kind = kChunk;
  uint64_t pin = 0;  // kRelease
  ShmPlace payload;
  ShmPlace chunk;  // in the message itself when its region is 0
  uint64_t chunk_bytes = 0;
};

struct ShmAnswer {
  enum Kind : uint64_t { kChunk = 1, kEnd = 2, kTaken = 3 };
  uint64_t kind = kChunk;
  uint64_t taken = 0;
  uint64_t answered = 0;
  uint64_t pin = 0;   // 0: none to release
  uint64_t code = 0;  // kEnd: absl::StatusCode; the chunk is its message
  ShmPlace payload;
  uint64_t chunk_bytes = 0;
};

// Writes `head`, `chunk` and an inline payload as one message; false when there
// is no room. INVALID_ARGUMENT: more than a message may have.
template <typename Head>
absl::StatusOr<bool> WriteShm(SharedChannel* channel, Head head,
                              const std::string& chunk,
                              std::span<const char> inline_payload) {
  head.chunk_bytes = chunk.size();
  std::string first(sizeof(head), '\0');
  std::memcpy(first.data(), &head, sizeof(head));
  first += chunk;
  if (first.size() + inline_payload.size() > SharedChannel::kMessageBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a header of ", chunk.size(), " bytes is too long"));
  }
  return channel->TryWrite(first, inline_payload);
}

// Splits a message; `chunk` and `inline_payload` point into it.
template <typename Head>
absl::Status ParseShm(const std::string& message, Head* head,
                      std::span<const char>* chunk,
                      std::span<const char>* inline_payload) {
  if (message.size() < sizeof(Head)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", message.size(),
                     " bytes is too short for its head of ", sizeof(Head)));
  }
  std::memcpy(head, message.data(), sizeof(Head));
  const std::span<const char> rest =
      std::span<const char>(message).subspan(sizeof(Head));
  if (head->chunk_bytes > rest.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message has ", rest.size(), " bytes behind its head, ",
                     "and its chunk should have ", head->chunk_bytes));
  }
  *chunk = rest.first(head->chunk_bytes);
  *inline_payload = rest.subspan(head->chunk_bytes);
  return absl::OkStatus();
}

// The bytes at `place` of `memory`. The peer wrote `place`, so the check must
// not overflow for any numbers.
inline absl::StatusOr<std::span<const char>> BytesAt(const SharedMemory& memory,
                                                     const ShmPlace& place) {
  if (place.offset > memory.bytes() ||
      place.bytes > memory.bytes() - place.offset) {
    return absl::InvalidArgumentError(
        absl::StrCat(place.bytes, " bytes at ", place.offset,
                     " are outside the shared memory of ", memory.bytes()));
  }
  return std::span<const char>(memory.data() + place.offset, place.bytes);
}

}  // namespace weir

#endif  // PROTO_WIRE_SHM_MESSAGE_H_
