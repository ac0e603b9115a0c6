// Cuts lists of ids into the messages that go to each shard.
//
// Place: TableClient cuts the lists of a lookup and of an update with it. Pure
// functions: no I/O, and no values of rows.
//
// Terms
//   list   ids of one table, ascending, as the caller gave them.
//   part   those ids of one list that one shard has, or a range of them.
//   piece  the parts of one message: one encoding, at most piece_bytes of rows
//          as float32, but always at least one row.
//
// Invariants
//   I1. Every id of every list is in exactly one part, on the shard that
//       ShardOfId names, and a part's ids ascend.
//   I2. A part knows where each of its rows lies in the caller's list.
// Cost: one pass over the ids. They are copied only if there are several
//   shards, and then kept by the part.
#ifndef CLIENT_CC_PARAMETERS_ROW_PIECES_H_
#define CLIENT_CC_PARAMETERS_ROW_PIECES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "proto/ps.pb.h"

namespace weir {

struct RowList {
  int table = 0;
  std::span<const uint64_t> ids;  // borrowed
};

// Moved, never copied: `ids` may point into the part's own `picked`.
struct RowPart {
  RowPart() = default;
  RowPart(RowPart&&) = default;
  RowPart& operator=(RowPart&&) = default;

  int table = 0;
  size_t wanted = 0;              // index of the caller's list
  std::span<const uint64_t> ids;  // of the caller's list, or of `picked`
  std::vector<uint64_t> picked;
  // Where each row lies in the caller's list. Empty: side by side, from
  // `first` on.
  std::vector<uint32_t> places;
  size_t first = 0;
  uint64_t name = 0;   // NameOfIds(ids)
  bool known = false;  // the shard has the list: its name is enough

  size_t PlaceOf(size_t i) const {
    return places.empty() ? first + i : places[i];
  }
};

struct RowPiece {
  std::vector<RowPart> parts;
  Encoding encoding = F32;
  int64_t floats = 0;
  bool sent = false;  // and not answered yet
};

// The purpose of a message: each table has an encoding for either.
enum class RowUse { kLookup, kUpdate };

// The pieces of each of `shards` shards, in the order of the lists; none for a
// shard that has no id of them. REQUIRES: every list names one of `tables`, and
// its ids ascend.
std::vector<std::vector<RowPiece>> CutRows(
    std::span<const RowList> lists, std::span<const EmbeddingTable> tables,
    int shards, int64_t piece_bytes, RowUse use);

}  // namespace weir

#endif  // CLIENT_CC_PARAMETERS_ROW_PIECES_H_
