// What a peer can make the tables of a shard keep.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/ps/rows/table_group.h"
#include "tests/server/ps/rows/table_store_tester.h"

namespace weir {
namespace {

constexpr int kDim = 1 << 16;

// Two tables, `wide` of dim 65536 and `u` of dim 1, plain SGD with rate 1.
Declaration Tables(const std::string& update) {
  return ParseDeclaration(absl::StrCat(
      "variable { name: 'w' shape: 4 } "
      "group { optimizer { sgd {} } schedule { learning_rate: 1 } } "
      "table { name: 'wide' dim: ",
      kDim,
      " schedule { learning_rate: 1 } initializer { zeros {} } } "
      "table { name: 'u' dim: 1 schedule { learning_rate: 1 } "
      "        initializer { zeros {} } } "
      "update { ",
      update, " } slot_count: 2"));
}

PullRowsChunk Read(const StoreTester& tester, int slot, const IdList& list,
                   const Want& want, uint32_t generation = 1) {
  PullRowsChunk request = Request(tester, slot, list, want);
  request.mutable_sender()->set_generation(generation);
  request.set_train(false);
  return request;
}

TEST(TableGroupLimitsTest, AReaderDoesNotRenameAWorkersList) {
  StoreTester tester(Tables("async {}"));
  LookUp(tester, Request(tester, 0, ListOf(1, {4, 8}, 77), LatestWant()));
  const auto reader =
      LookUp(tester, Read(tester, 0, ListOf(1, {5, 9}, 77), LatestWant(), 0));
  EXPECT_EQ(reader->rows(), (std::vector<float>{0, 0}));
  PushRowsChunk chunk = Piece(tester, 0, 0, 0);
  *chunk.add_list() = ListOf(1, {4, 8}, 77);
  chunk.mutable_list(0)->clear_deltas();
  ASSERT_EQ(OutcomeOf(Apply(tester, chunk, {1, 2})), Receipt::ACCEPTED);
  EXPECT_EQ(Rows(tester, {4, 5, 8, 9}, 1), (std::vector<float>{-1, 0, -2, 0}));
}

}  // namespace
}  // namespace weir
