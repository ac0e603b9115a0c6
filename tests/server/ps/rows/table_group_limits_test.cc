// What a peer can make the tables of a shard keep.
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "gmock/gmock.h"
#include "server/ps/rows/table_group.h"
#include "tests/server/ps/rows/table_store_tester.h"

namespace weir {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

constexpr int kDim = 1 << 16;
// The ids of `wide` whose rows fill one answer.
const std::vector<uint64_t> kFull = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static_assert(12 * sizeof(float) * kDim == kRowBytesMax);

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

// Remembers which sizes were asked for.
struct SizesArena : CountingArena {
  void* Allocate(size_t bytes) override {
    sizes.insert(bytes);
    return CountingArena::Allocate(bytes);
  }
  std::set<size_t> sizes;
};

// Answers that nobody lets go, until one lookup has to wait; it is the last.
std::vector<std::shared_ptr<LookupResult>> LookUpUntilOneWaits(
    StoreTester& tester, int slot, uint32_t generation = 1) {
  std::vector<std::shared_ptr<LookupResult>> unread;
  do {
    unread.push_back(LookUp(tester, Read(tester, slot, ListOf(0, kFull),
                                         LatestWant(), generation)));
  } while (unread.back()->done && unread.size() < 200);
  return unread;
}

TEST(TableGroupLimitsTest, AnswersThatASenderDoesNotReadStayWithinItsShare) {
  StoreTester tester(Tables("async {}"));
  auto unread = LookUpUntilOneWaits(tester, 0);
  const auto waits = unread.back();
  unread.pop_back();
  EXPECT_EQ(unread.size(), kRowAnswerBytesPerSender / kRowBytesMax);
  EXPECT_EQ(tester.store->GetStatus().waits_parked(), 1u);
  // Neither the other slot nor readers wait for that.
  EXPECT_TRUE(
      LookUp(tester, Read(tester, 1, ListOf(0, kFull), LatestWant()))->done);
  EXPECT_TRUE(
      LookUp(tester, Read(tester, 0, ListOf(0, kFull), LatestWant(), 0))->done);
  tester.store->ExpireWaits();
  EXPECT_FALSE(waits->done);
  unread.pop_back();
  tester.store->ExpireWaits();
  ASSERT_TRUE(waits->done);
  EXPECT_EQ(waits->answer->bytes, kRowBytesMax);
}

TEST(TableGroupLimitsTest, AllReadersTogetherHaveOneShare) {
  StoreTester tester(Tables("async {}"));
  const auto unread = LookUpUntilOneWaits(tester, 0, /*generation=*/0);
  const auto another =
      LookUp(tester, Read(tester, 1, ListOf(0, kFull), LatestWant(), 0));
  EXPECT_FALSE(another->done);
  EXPECT_EQ(LookUpUntilOneWaits(tester, 0).size(), unread.size());
}

TEST(TableGroupLimitsTest, ALookupThatFindsNoRoomEndsAtItsDeadline) {
  StoreTester tester(Tables("async {}"));
  const auto unread = LookUpUntilOneWaits(tester, 0);
  tester.clock.Advance(std::chrono::milliseconds(kWaitDefaultMs));
  tester.store->ExpireWaits();
  ASSERT_TRUE(unread.back()->done);
  EXPECT_TRUE(unread.back()->answer->header.not_yet());
}

TEST(TableGroupLimitsTest, EncodedRowsHoldRoomForWhatLeaves) {
  StoreTester tester(Tables("async {}"));
  std::vector<std::shared_ptr<LookupResult>> unread;
  do {
    PullRowsChunk request = Read(tester, 0, ListOf(0, kFull), LatestWant());
    request.mutable_want()->set_encoding(BF16);
    unread.push_back(LookUp(tester, request));
  } while (unread.back()->done && unread.size() < 200);
  EXPECT_EQ(unread.size() - 1, kRowAnswerBytesPerSender / (kRowBytesMax / 2));
}

TEST(TableGroupLimitsTest, AnswersOfManySizesUseTheSameMemory) {
  SizesArena arena;
  StoreTester tester(Tables("async {}"), 0, true, &arena);
  std::vector<uint64_t> ids;
  for (uint64_t id = 0; id < 1000; ++id) {
    ids.push_back(id);
    LookUp(tester, Read(tester, 0, ListOf(1, ids), LatestWant()));
  }
  EXPECT_LE(arena.sizes.size(), 20u);
}

TEST(TableGroupLimitsTest, IdsOfWaitingLookupsStayWithinASendersShare) {
  StoreTester tester(Tables("sync { contributions: 1 }"));
  std::vector<uint64_t> ids(kRowBytesMax / sizeof(float));
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = 3 * i;
  }
  const IdList list = ListOf(1, ids);
  std::vector<std::shared_ptr<LookupResult>> waits;
  do {
    waits.push_back(LookUp(tester, Read(tester, 0, list, VersionWant(1))));
  } while (!waits.back()->done && waits.size() < 200);
  EXPECT_EQ(waits.back()->answer.status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_THAT(waits.back()->answer.status().message(), HasSubstr("of slot 0"));
  EXPECT_EQ(waits.size() - 1,
            kRowWaitBytesPerSender / (ids.size() * sizeof(uint64_t)));
  EXPECT_FALSE(LookUp(tester, Read(tester, 1, list, VersionWant(1)))->done);
  EXPECT_FALSE(LookUp(tester, Read(tester, 0, list, VersionWant(1), 0))->done);
}

TEST(TableGroupLimitsTest, ReadersThatWaitForRowsKeepNoWorkerOut) {
  StoreTester tester(Tables("sync { contributions: 1 }"));
  const auto parks = [&](int slot, uint32_t generation) {
    return !LookUp(tester, Read(tester, slot, ListOf(1, {1}), VersionWant(1),
                                generation))
                ->done;
  };
  int64_t waiting = 0;
  while (waiting < 10000 && parks(static_cast<int>(waiting % 7), 0)) {
    ++waiting;
  }
  EXPECT_EQ(waiting, kRowWaitsOfReaders);
  for (int slot = 0; slot < 2; ++slot) {
    waiting = 0;
    while (waiting < 10000 && parks(slot, 1)) {
      ++waiting;
    }
    EXPECT_EQ(waiting, kRowWaitsPerSlot);
  }
}

// ------------------------------------------------------------------ lists

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

// ----------------------------------------------------------------- pushes

// Adds full pieces to a push until it is refused.
absl::Status PushUntilRefused(StoreTester& tester, int* pieces) {
  PushRowsChunk chunk = Piece(tester, 0, 0, 0);
  chunk.set_last(false);
  *chunk.add_list() = ListOf(0, kFull);
  const Payload payload =
      MakePayload(std::vector<float>(kFull.size() * kDim, 1));
  RowPush push(tester.store.get());
  absl::Status status;
  for (*pieces = 0; *pieces < 50; ++*pieces) {
    status = push.Add(chunk, payload);
    if (!status.ok()) {
      break;
    }
  }
  return status;
}

TEST(TableGroupLimitsTest, APushThatIsAloneIsBounded) {
  StoreTester tester(Tables("async {}"));
  int pieces = 0;
  const absl::Status status = PushUntilRefused(tester, &pieces);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(status.message(), HasSubstr("limits.out_of_order_bytes"));
  EXPECT_EQ(pieces, kRowPushBytesMin / kRowBytesMax);
  EXPECT_EQ(tester.store->GetStatus().out_of_order_bytes(), 0u);
}

TEST(TableGroupLimitsTest, APushThatIsAwaitedIsBounded) {
  StoreTester tester(Tables("sync { contributions: 1 }"));
  int pieces = 0;
  EXPECT_EQ(PushUntilRefused(tester, &pieces).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(pieces, kRowPushBytesMin / kRowBytesMax);
  EXPECT_EQ(tester.store->GetStatus().out_of_order_bytes(), 0u);
}

TEST(TableGroupLimitsTest, APushMayHoldWhatTheJobKeepsForLater) {
  Declaration declaration = Tables("async {}");
  declaration.set_out_of_order_bytes(uint64_t{25} << 20);
  StoreTester tester(declaration);
  int pieces = 0;
  EXPECT_EQ(PushUntilRefused(tester, &pieces).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(pieces, 8);
}

TEST(TableGroupLimitsTest, ANewerPushOfASlotEndsTheOlderOne) {
  StoreTester tester(Tables("async {}"));
  PushRowsChunk chunk = Piece(tester, 0, 0, 0);
  chunk.set_last(false);
  *chunk.add_list() = ListOf(1, {1});
  RowPush older(tester.store.get());
  ASSERT_TRUE(older.Add(chunk, MakePayload({1})).ok());
  const uint64_t one = tester.store->GetStatus().out_of_order_bytes();
  EXPECT_GT(one, 0u);
  RowPush newer(tester.store.get());
  ASSERT_TRUE(newer.Add(chunk, MakePayload({2})).ok());
  EXPECT_EQ(tester.store->GetStatus().out_of_order_bytes(), one);
  // Another slot's is its own.
  chunk.mutable_sender()->set_slot(1);
  RowPush others(tester.store.get());
  ASSERT_TRUE(others.Add(chunk, MakePayload({4})).ok());
  EXPECT_EQ(tester.store->GetStatus().out_of_order_bytes(), 2 * one);

  chunk.mutable_sender()->set_slot(0);
  *chunk.mutable_list(0) = ListOf(1, {2});
  const absl::Status late = older.Add(chunk, MakePayload({8}));
  EXPECT_EQ(late.code(), StatusCode::kAborted) << late;
  older.Apply([](const absl::StatusOr<PushRowsReply>& reply) {
    EXPECT_EQ(reply.status().code(), StatusCode::kAborted);
  });
  newer.Apply([](const absl::StatusOr<PushRowsReply>& reply) {
    EXPECT_EQ(reply->rows_applied(), 1u);
  });
  EXPECT_EQ(Rows(tester, {1, 2}, 1), (std::vector<float>{-2, 0}));
}

TEST(TableGroupLimitsTest, ManyShortListsTakeTheRoomThatTheyNeed) {
  StoreTester tester(Tables("async {}"));
  PushRowsChunk chunk = Piece(tester, 0, 0, 0);
  chunk.set_last(false);
  const std::vector<float> ones(1000, 1);
  for (uint64_t id = 0; id < ones.size(); ++id) {
    *chunk.add_list() = ListOf(1, {id});
  }
  RowPush push(tester.store.get());
  ASSERT_TRUE(push.Add(chunk, MakePayload(ones)).ok());
  EXPECT_GE(tester.store->GetStatus().out_of_order_bytes(),
            ones.size() * kListOverheadBytes);
}

// --------------------------------------------------------------- hot rows

TEST(TableGroupLimitsTest, HotIdsAreLookedForOnceInAWhile) {
  StoreTester tester(Tables("async {}"));
  const auto hot = [&] {
    GetStatusRequest request;
    request.set_hot_ids(1);
    return tester.store->GetStatus(request).table(1).hot_updates(0);
  };
  PushRowsChunk chunk = Piece(tester, 0, 0, 0);
  *chunk.add_list() = ListOf(1, {5});
  Apply(tester, chunk, {1});
  EXPECT_EQ(hot(), 1u);
  chunk.mutable_push()->set_sequence(1);
  Apply(tester, chunk, {1});
  EXPECT_EQ(hot(), 1u);
  EXPECT_EQ(tester.store->GetStatus().table(1).rows_updated(), 2u);
  tester.clock.Advance(kHotRowsKept);
  EXPECT_EQ(hot(), 2u);
}

TEST(TableGroupLimitsTest, ALookupThatFindsNoMemoryHoldsNothingUp) {
  EndingArena arena;
  StoreTester tester(Tables("sync { contributions: 1 }"), 0, true, &arena);
  arena.left = 0;
  for (const Encoding encoding : {F32, BF16}) {
    PullRowsChunk request = Read(tester, 0, ListOf(1, {1}), LatestWant());
    request.mutable_want()->set_encoding(encoding);
    EXPECT_EQ(LookUp(tester, request)->answer.status().code(),
              StatusCode::kResourceExhausted);
  }
  arena.left = 100;
  // The step is published when no lookup is under way.
  PushRowsChunk chunk = Piece(tester, 0, 0, 0);
  *chunk.add_list() = ListOf(1, {1});
  Apply(tester, chunk, {1});
  EXPECT_EQ(Rows(tester, {1}, 1), (std::vector<float>{-1}));
}

}  // namespace
}  // namespace weir
