// CRC32C of payloads on their way between hosts.
//
// Place: the sender of a payload may put its checksum into the chunk's header.
// The receiver checks the pieces where they lie, before it uses them. TCP's own
// checksum misses one damaged packet in 65536, and the checksums of network
// cards do not see what happens in the memory of a switch or a host.
//
// Threads: safe.
// Errors: DATA_LOSS  the bytes are not those that were sent.
// Cost: one pass over the payload.
#ifndef PROTO_WIRE_PAYLOAD_CHECKSUM_H_
#define PROTO_WIRE_PAYLOAD_CHECKSUM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/io/crc32c.h"
#include "common/io/payload.h"

namespace weir {

inline uint32_t ChecksumOf(const Payload& payload) {
  uint32_t crc = 0;
  for (const auto& piece : payload.pieces()) {
    crc = ExtendCrc32c(crc, piece.data(), piece.size());
  }
  return crc;
}

// Compares the payload with the header's checksum. OK if the header has none.
template <class Chunk>
absl::Status CheckPayload(const Chunk& header, const Payload& payload) {
  if (!header.has_crc32c()) {
    return absl::OkStatus();
  }
  const uint32_t crc = ChecksumOf(payload);
  if (crc == header.crc32c()) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      "a payload of ", payload.bytes(),
      " bytes was damaged on its way: CRC32C ", absl::Hex(crc, absl::kZeroPad8),
      " in place of ", absl::Hex(header.crc32c(), absl::kZeroPad8)));
}

}  // namespace weir

#endif  // PROTO_WIRE_PAYLOAD_CHECKSUM_H_
