#include "client/cc/parameters/row_pieces.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/job/row_hash.h"
#include "proto/wire/id_list.h"

namespace weir {
namespace {

constexpr int64_t kPieceBytes = 64;  // 16 floats

EmbeddingTable TableOf(uint32_t dim, Encoding lookup = F32,
                       Encoding update = F32) {
  EmbeddingTable table;
  table.set_dim(dim);
  table.set_lookup(lookup);
  table.set_update(update);
  return table;
}

std::vector<uint64_t> IdsTo(uint64_t count) {
  std::vector<uint64_t> ids;
  for (uint64_t id = 0; id < count; ++id) {
    ids.push_back(id * 7 + 3);
  }
  return ids;
}

TEST(RowPiecesTest, EveryIdIsInOnePartOnItsShardWithItsPlace) {
  const std::vector<EmbeddingTable> tables = {TableOf(2), TableOf(3)};
  const std::vector<uint64_t> a = IdsTo(100);
  const std::vector<uint64_t> b = IdsTo(41);
  const std::vector<RowList> lists = {{1, a}, {0, b}};
  for (const int shards : {1, 3}) {
    const auto pieces =
        CutRows(lists, tables, shards, kPieceBytes, RowUse::kLookup);
    ASSERT_EQ(pieces.size(), static_cast<size_t>(shards));
    std::vector<std::vector<int>> seen = {std::vector<int>(a.size()),
                                          std::vector<int>(b.size())};
    for (int s = 0; s < shards; ++s) {
      for (const RowPiece& piece : pieces[s]) {
        for (const RowPart& part : piece.parts) {
          EXPECT_EQ(part.table, lists[part.wanted].table);
          EXPECT_EQ(part.name, NameOfIds(part.ids));
          for (size_t i = 0; i < part.ids.size(); ++i) {
            EXPECT_EQ(ShardOfId(part.ids[i], shards), s);
            const size_t place = part.PlaceOf(i);
            ASSERT_LT(place, lists[part.wanted].ids.size());
            EXPECT_EQ(lists[part.wanted].ids[place], part.ids[i]);
            ++seen[part.wanted][place];
            EXPECT_TRUE(i == 0 || part.ids[i - 1] < part.ids[i]);
          }
        }
      }
    }
    EXPECT_EQ(seen[0], std::vector<int>(a.size(), 1));
    EXPECT_EQ(seen[1], std::vector<int>(b.size(), 1));
  }
}

TEST(RowPiecesTest, APieceHasAtMostItsBytesAndCountsItsFloats) {
  const std::vector<EmbeddingTable> tables = {TableOf(3), TableOf(5)};
  const std::vector<uint64_t> a = IdsTo(13);
  const std::vector<uint64_t> b = IdsTo(4);
  const std::vector<RowList> lists = {{0, a}, {1, b}};
  const auto pieces = CutRows(lists, tables, 1, kPieceBytes, RowUse::kUpdate);
  int64_t rows = 0;
  for (const RowPiece& piece : pieces[0]) {
    int64_t piece_rows = 0;
    int64_t floats = 0;
    for (const RowPart& part : piece.parts) {
      piece_rows += static_cast<int64_t>(part.ids.size());
      floats +=
          static_cast<int64_t>(part.ids.size()) * tables[part.table].dim();
    }
    EXPECT_EQ(piece.floats, floats);
    EXPECT_LE(piece.floats * 4, kPieceBytes);
    EXPECT_FALSE(piece.sent);
    rows += piece_rows;
  }
  EXPECT_EQ(rows, 17);
}

TEST(RowPiecesTest, ARowThatIsLargerThanAPieceGoesAlone) {
  const std::vector<EmbeddingTable> tables = {TableOf(100)};
  const std::vector<uint64_t> ids = IdsTo(3);
  const std::vector<RowList> lists = {{0, ids}};
  const auto pieces = CutRows(lists, tables, 1, kPieceBytes, RowUse::kLookup);
  ASSERT_EQ(pieces[0].size(), 3u);
  EXPECT_EQ(pieces[0][1].parts[0].ids.size(), 1u);
}

TEST(RowPiecesTest, SmallListsOfOneEncodingShareAPiece) {
  const std::vector<EmbeddingTable> tables = {TableOf(1), TableOf(1),
                                              TableOf(1, BF16, INT8)};
  const std::vector<uint64_t> ids = IdsTo(3);
  const std::vector<RowList> lists = {{0, ids}, {1, ids}, {2, ids}};
  const auto lookup = CutRows(lists, tables, 1, kPieceBytes, RowUse::kLookup);
  ASSERT_EQ(lookup[0].size(), 2u);
  EXPECT_EQ(lookup[0][0].parts.size(), 2u);
  EXPECT_EQ(lookup[0][0].encoding, F32);
  EXPECT_EQ(lookup[0][1].encoding, BF16);
  const auto update = CutRows(lists, tables, 1, kPieceBytes, RowUse::kUpdate);
  ASSERT_EQ(update[0].size(), 2u);
  EXPECT_EQ(update[0][1].encoding, INT8);
}

TEST(RowPiecesTest, OneShardCopiesNoIds) {
  const std::vector<EmbeddingTable> tables = {TableOf(1)};
  const std::vector<uint64_t> ids = IdsTo(40);
  const std::vector<RowList> lists = {{0, ids}};
  const auto pieces = CutRows(lists, tables, 1, kPieceBytes, RowUse::kLookup);
  ASSERT_EQ(pieces[0].size(), 3u);
  EXPECT_EQ(pieces[0][0].parts[0].ids.data(), ids.data());
  EXPECT_EQ(pieces[0][2].parts[0].ids.data(), ids.data() + 32);
  EXPECT_EQ(pieces[0][2].parts[0].PlaceOf(1), 33u);
}

TEST(RowPiecesTest, AShardWithoutIdsHasNoPieces) {
  const std::vector<EmbeddingTable> tables = {TableOf(1)};
  const std::vector<uint64_t> ids = {5};
  const std::vector<RowList> lists = {{0, ids}, {0, {}}};
  const auto pieces = CutRows(lists, tables, 4, kPieceBytes, RowUse::kLookup);
  size_t with_pieces = 0;
  for (const auto& of_shard : pieces) {
    with_pieces += of_shard.empty() ? 0 : 1;
  }
  EXPECT_EQ(with_pieces, 1u);
}

}  // namespace
}  // namespace weir
