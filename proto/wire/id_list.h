// Lists of row ids on the wire. The ids ascend, and their differences are sent
// as varints.
//
// Place: both ends of PullRows and PushRows; proto/ps.proto, IdList, has the
// bytes.
//
// Threads: safe.
#ifndef PROTO_WIRE_ID_LIST_H_
#define PROTO_WIRE_ID_LIST_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

// Ids that one list may have; a chunk's rows bound it further.
inline constexpr uint32_t kListIdsMax = 1 << 20;
// Bytes of rows, as float32, that one chunk may ask for or bring.
inline constexpr uint64_t kRowBytesMax = 3 << 20;

// REQUIRES: `ids` ascend, each once.
std::string EncodeIds(std::span<const uint64_t> ids);

// Errors: INVALID_ARGUMENT  `deltas` are not `count` ids, or do not ascend.
absl::StatusOr<std::vector<uint64_t>> DecodeIds(const std::string& deltas,
                                                uint32_t count);

// A name for IdList.name: never 0.
uint64_t NameOfIds(std::span<const uint64_t> ids);

}  // namespace weir

#endif  // PROTO_WIRE_ID_LIST_H_
