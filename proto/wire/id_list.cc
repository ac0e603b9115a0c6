#include "proto/wire/id_list.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/job/row_hash.h"

namespace weir {
namespace {

constexpr int kVarintBytesMax = 10;  // 64 bits, 7 in each byte

// Reads a varint at *at and moves *at behind it; false when there is none.
bool ReadVarint(const char** at, const char* end, uint64_t* value) {
  *value = 0;
  for (int i = 0; i < kVarintBytesMax && *at != end; ++i) {
    const auto byte = static_cast<uint8_t>(*(*at)++);
    // The tenth byte has room for one bit.
    if (i == kVarintBytesMax - 1 && byte > 1) {
      return false;
    }
    *value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string EncodeIds(std::span<const uint64_t> ids) {
  std::string deltas(ids.size() * kVarintBytesMax, '\0');
  char* out = deltas.data();
  uint64_t next = 0;  // the smallest that may follow
  for (const uint64_t id : ids) {
    uint64_t delta = id - next;
    for (; delta >= 0x80; delta >>= 7) {
      *out++ = static_cast<char>(delta | 0x80);
    }
    *out++ = static_cast<char>(delta);
    next = id + 1;
  }
  deltas.resize(static_cast<size_t>(out - deltas.data()));
  return deltas;
}

absl::StatusOr<std::vector<uint64_t>> DecodeIds(const std::string& deltas,
                                                uint32_t count) {
  // Both numbers come from the peer. Every id takes a byte at least, so memory
  // for the ids is taken only in proportion to what was really sent.
  if (count > kListIdsMax || deltas.size() < count) {
    return absl::InvalidArgumentError(
        absl::StrCat("a list of ", count, " ids in ", deltas.size(),
                     " bytes; at most ", kListIdsMax, " are allowed"));
  }
  std::vector<uint64_t> ids(count);
  const char* at = deltas.data();
  const char* const end = at + deltas.size();
  uint64_t next = 0;
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t delta = 0;
    if (!ReadVarint(&at, end, &delta)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "id ", i, " of ", count, " is cut off, or is not a varint"));
    }
    ids[i] = next + delta;
    // The sum may wrap past 2^64 - 1, and behind the largest id `next` is 0. In
    // both cases the ids would begin again from below.
    if (ids[i] < next || (i > 0 && next == 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("id ", i, " of ", count, " does not ascend"));
    }
    next = ids[i] + 1;
  }
  if (at != end) {
    return absl::InvalidArgumentError(
        absl::StrCat(end - at, " bytes after the last of ", count, " ids"));
  }
  return ids;
}

uint64_t NameOfIds(std::span<const uint64_t> ids) {
  // The id is also added, so that each step depends on the order of the ids.
  uint64_t name = IndexHash(ids.size() + 1);
  for (const uint64_t id : ids) {
    name = IndexHash(name ^ id) + id;
  }
  // 0 on the wire means that the list has no name.
  return std::max<uint64_t>(name, 1);
}

}  // namespace weir
