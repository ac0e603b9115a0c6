#include "server/ps/rows/row_lookup.h"

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/wire/value_encoding.h"

namespace weir {
namespace {

constexpr int kDim = 3;

TableOptions Options() {
  TableOptions options;
  options.name = "t";
  options.dim = kDim;
  options.init.kind = InitKind::kConstant;
  options.init.scale = 2;
  return options;
}

Ids ListOf(std::vector<uint64_t> ids) {
  return std::make_shared<const std::vector<uint64_t>>(std::move(ids));
}

// One table whose rows are all twos.
struct Tester {
  Tester() {
    declaration.add_table()->set_dim(kDim);
    tables.push_back(*Table::Create(Options()));
    before.emplace_back(kDim);
  }
  RowLookup Lookup(std::vector<Ids> lists, Encoding encoding = F32) {
    PullRowsChunk request;
    for (const Ids& ids : lists) {
      request.add_list()->set_count(static_cast<uint32_t>(ids->size()));
      request.mutable_list(request.list_size() - 1)->set_deltas("long");
    }
    request.mutable_want()->set_encoding(encoding);
    request.set_request(7);
    request.set_train(true);
    return MakeLookup(declaration, request, std::move(lists), nullptr);
  }
  RowSources sources() { return {tables, before, looked_up, Arena::Heap()}; }

  Declaration declaration;
  std::vector<std::unique_ptr<Table>> tables;
  std::vector<RowsBefore> before;
  std::vector<std::atomic<uint64_t>> looked_up =
      std::vector<std::atomic<uint64_t>>(1);
};

TEST(RowLookupTest, KeepsTheIdsAndNotTheirEncodedLists) {
  Tester tester;
  const RowLookup lookup = tester.Lookup({ListOf({1, 2}), ListOf({5})}, BF16);
  EXPECT_EQ(lookup.floats, 3 * kDim);
  EXPECT_EQ(lookup.bytes(), 2 * kListOverheadBytes + 3 * 8);
  EXPECT_EQ(lookup.answer_bytes(), 3 * kDim * 2);
  EXPECT_EQ(lookup.request.request(), 7u);
  EXPECT_TRUE(lookup.request.train());
  ASSERT_EQ(lookup.request.list_size(), 2);
  EXPECT_EQ(lookup.request.list(0).deltas(), "");
  EXPECT_EQ(tester.Lookup({}, BF16).answer_bytes(), 0);
}

TEST(RowLookupTest, RowsHoldTheirRoomUntilTheyAreGone) {
  Tester tester;
  for (const Encoding encoding : {F32, BF16}) {
    const auto budget = std::make_shared<AnswerBudget>();
    const RowLookup lookup = tester.Lookup({ListOf({1, 2})}, encoding);
    RowReading reading = {Readable::kNow, budget->Take(Sender(), 24)};
    BlockRef rows = *CopyRows(tester.sources(), lookup, reading);
    EXPECT_EQ(std::vector<float>(rows.data(), rows.data() + lookup.floats),
              std::vector<float>(2 * kDim, 2));
    rows = *EncodeRows(tester.sources(), lookup, reading, std::move(rows));
    reading.room.reset();
    EXPECT_EQ(budget->used(), 24);
    rows = BlockRef();
    EXPECT_EQ(budget->used(), 0);
  }
  EXPECT_EQ(tester.looked_up[0], 4u);
}

TEST(RowLookupTest, BuffersHaveFewSizes) {
  Tester tester;
  const auto elements = [&](size_t rows, Encoding encoding) {
    const RowLookup lookup =
        tester.Lookup({ListOf(std::vector<uint64_t>(rows, 1))}, encoding);
    const RowReading reading = {Readable::kNow, nullptr};
    return EncodeRows(tester.sources(), lookup, reading,
                      *CopyRows(tester.sources(), lookup, reading))
        ->elements();
  };
  EXPECT_EQ(elements(350, F32), 2048);
  EXPECT_EQ(elements(600, F32), 2048);
  EXPECT_EQ(elements(600, BF16), 1024);
}

}  // namespace
}  // namespace weir
