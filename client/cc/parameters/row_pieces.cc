#include "client/cc/parameters/row_pieces.h"

#include <algorithm>
#include <utility>

#include "common/job/row_hash.h"
#include "proto/wire/id_list.h"

namespace weir {
namespace {

// The ids of `list` by shard. The parts have neither table nor name yet: these
// are for the ranges of them that go in one message.
std::vector<RowPart> SplitByShard(const RowList& list, int shards) {
  std::vector<RowPart> parts(static_cast<size_t>(shards));
  if (shards == 1) {
    // The caller's list is sent as it is; nothing is copied.
    parts[0].ids = list.ids;
    return parts;
  }
  for (size_t i = 0; i < list.ids.size(); ++i) {
    RowPart& part = parts[static_cast<size_t>(ShardOfId(list.ids[i], shards))];
    part.picked.push_back(list.ids[i]);
    part.places.push_back(static_cast<uint32_t>(i));
  }
  for (RowPart& part : parts) {
    part.ids = part.picked;  // only now: push_back moves the memory
  }
  return parts;
}

// Ids [begin, end) of `all`, as a part of its own.
RowPart RangeOf(const RowPart& all, size_t begin, size_t end) {
  RowPart part;
  part.first = begin;
  part.ids = all.ids.subspan(begin, end - begin);
  if (!all.places.empty()) {
    // I2: `all` goes away, so a part that was picked keeps ids and places.
    part.picked.assign(part.ids.begin(), part.ids.end());
    part.ids = part.picked;
    part.places.assign(all.places.begin() + static_cast<int64_t>(begin),
                       all.places.begin() + static_cast<int64_t>(end));
  }
  part.name = NameOfIds(part.ids);
  return part;
}

// The last of `pieces` if `rows` of `dim` floats fit into it, else a new one.
RowPiece* PieceFor(int64_t rows, int64_t dim, Encoding encoding,
                   int64_t piece_bytes, std::vector<RowPiece>* pieces) {
  if (pieces->empty() || encoding != pieces->back().encoding ||
      (pieces->back().floats + rows * dim) * 4 > piece_bytes) {
    pieces->emplace_back();
    pieces->back().encoding = encoding;
  }
  return &pieces->back();
}

}  // namespace

std::vector<std::vector<RowPiece>> CutRows(
    std::span<const RowList> lists, std::span<const EmbeddingTable> tables,
    int shards, int64_t piece_bytes, RowUse use) {
  std::vector<std::vector<RowPiece>> pieces(static_cast<size_t>(shards));
  for (size_t k = 0; k < lists.size(); ++k) {
    const EmbeddingTable& table = tables[static_cast<size_t>(lists[k].table)];
    const Encoding encoding =
        use == RowUse::kLookup ? table.lookup() : table.update();
    const int64_t row_bytes = int64_t{table.dim()} * 4;
    const auto rows_max =
        static_cast<size_t>(std::max<int64_t>(piece_bytes / row_bytes, 1));
    const std::vector<RowPart> parts = SplitByShard(lists[k], shards);
    // I1: the ranges below cover each shard's ids, one behind the other.
    for (size_t s = 0; s < parts.size(); ++s) {
      const size_t count = parts[s].ids.size();
      for (size_t at = 0; at < count; at += rows_max) {
        const size_t end = std::min(at + rows_max, count);
        RowPart part = RangeOf(parts[s], at, end);
        part.table = lists[k].table;
        part.wanted = k;
        const auto rows = static_cast<int64_t>(end - at);
        RowPiece* const piece =
            PieceFor(rows, table.dim(), encoding, piece_bytes, &pieces[s]);
        piece->floats += rows * table.dim();
        piece->parts.push_back(std::move(part));
      }
    }
  }
  return pieces;
}

}  // namespace weir
