#include "server/ps/rows/table_group.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/row_hash.h"
#include "common/math/random.h"
#include "gmock/gmock.h"
#include "tests/server/ps/rows/table_store_tester.h"

namespace weir {
namespace {

using testing::HasSubstr;

// Two tables, `t` of dim 2 and `u` of dim 1, plain SGD with rate 1.
Declaration TwoTables(const std::string& update, int slots = 2,
                      const std::string& more = "") {
  return ParseDeclaration(absl::StrCat(
      "variable { name: 'w' shape: 4 } "
      "group { optimizer { sgd {} } schedule { learning_rate: 1 } } "
      "table { name: 't' dim: 2 schedule { learning_rate: 1 } "
      "        initializer { constant: 1 } } "
      "table { name: 'u' dim: 1 schedule { learning_rate: 1 } "
      "        initializer { zeros {} } } "
      "update { ",
      update, " } slot_count: ", slots, " ", more));
}

PushRowsChunk With(PushRowsChunk chunk, uint32_t table,
                   const std::vector<uint64_t>& ids) {
  *chunk.add_list() = ListOf(table, ids);
  return chunk;
}

// ----------------------------------------------------------------- async

TEST(TableGroupTest, AnUpdateMovesItsRowsOnce) {
  StoreTester tester(TwoTables("async {}"));
  const PushRowsChunk chunk = With(Piece(tester, 0, 0, 0), 0, {3, 9});
  const auto first = Apply(tester, chunk, {0.5f, 1, 2, 3});
  EXPECT_EQ(OutcomeOf(first), Receipt::ACCEPTED);
  EXPECT_EQ(first->reply->rows_applied(), 2u);
  EXPECT_EQ(OutcomeOf(Apply(tester, chunk, {0.5f, 1, 2, 3})),
            Receipt::DUPLICATE);
  EXPECT_EQ(Rows(tester, {3, 4, 9}),
            (std::vector<float>{0.5f, 0, 1, 1, -1, -2}));
}

TEST(TableGroupTest, ASkippedContributionIsNamed) {
  StoreTester tester(TwoTables("async {}"));
  const auto result = Apply(tester, Piece(tester, 1, 4, 0), {});
  EXPECT_EQ(result->reply.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(result->reply.status().message(),
              HasSubstr("expected sequence number 0"));
}

TEST(TableGroupTest, PiecesTakeEffectTogetherOrNotAtAll) {
  StoreTester tester(TwoTables("async {}"));
  PushRowsChunk first = With(Piece(tester, 0, 0, 0), 0, {1});
  first.set_last(false);
  {
    RowPush broken(tester.store.get());
    ASSERT_TRUE(broken.Add(first, MakePayload({1, 1})).ok());
  }
  EXPECT_EQ(Rows(tester, {1}), (std::vector<float>{1, 1}));
  RowPush whole(tester.store.get());
  ASSERT_TRUE(whole.Add(first, MakePayload({1, 1})).ok());
  ASSERT_TRUE(
      whole.Add(With(Piece(tester, 0, 0, 0), 1, {5, 6}), MakePayload({2, 3}))
          .ok());
  EXPECT_EQ(Rows(tester, {1}), (std::vector<float>{1, 1}));
  whole.Apply([](const absl::StatusOr<PushRowsReply>& reply) {
    EXPECT_EQ(reply->rows_applied(), 3u);
  });
  EXPECT_EQ(Rows(tester, {1}), (std::vector<float>{0, 0}));
  EXPECT_EQ(Rows(tester, {5, 6}, 1), (std::vector<float>{-2, -3}));
}

TEST(TableGroupTest, NaNLeavesTheWholeUpdateOutAndTheContributionCounts) {
  StoreTester tester(TwoTables("async {}"));
  const auto bad =
      Apply(tester, With(Piece(tester, 0, 0, 0), 1, {1, 2}), {1, NAN});
  EXPECT_EQ(OutcomeOf(bad), Receipt::LEFT_OUT);
  EXPECT_EQ(bad->reply->receipt().bad_variable(), 1u);
  EXPECT_EQ(Rows(tester, {1, 2}, 1), (std::vector<float>{0, 0}));
  EXPECT_EQ(OutcomeOf(Apply(tester, Piece(tester, 0, 1, 0), {})),
            Receipt::ACCEPTED);
}

TEST(TableGroupTest, StalenessIsTheUpdatesInBetween) {
  StoreTester tester(TwoTables("async {}"));
  Apply(tester, Piece(tester, 0, 0, 0), {});
  Apply(tester, Piece(tester, 0, 1, 1), {});
  const auto late = Apply(tester, Piece(tester, 1, 0, 0), {});
  EXPECT_EQ(late->reply->receipt().staleness(), 2u);
  const auto ahead = Apply(tester, Piece(tester, 1, 1, 9), {});
  EXPECT_THAT(ahead->reply.status().message(), HasSubstr("ahead of version 3"));
}

TEST(TableGroupTest, ARateMayComeWithTheUpdate) {
  StoreTester tester(TwoTables("async {}"));
  PushRowsChunk chunk = With(Piece(tester, 0, 0, 0), 1, {1});
  chunk.add_rate()->set_table(1);
  chunk.mutable_rate(0)->set_learning_rate(0.25);
  Apply(tester, chunk, {4});
  EXPECT_EQ(Rows(tester, {1}, 1), (std::vector<float>{-1}));
}

TEST(TableGroupTest, AnEmptyUpdateIsAStepOfEveryTable) {
  StoreTester tester(ParseDeclaration(
      "variable { name: 'w' shape: 4 } "
      "group { optimizer { sgd {} } schedule { learning_rate: 1 } } "
      "table { name: 't' dim: 1 initializer { zeros {} } "
      "        schedule { learning_rate: 1 step { every: 1 factor: 0.5 } } } "
      "update { async {} }"));
  Apply(tester, Piece(tester, 0, 0, 0), {});
  Apply(tester, Piece(tester, 0, 1, 1), {});
  Apply(tester, With(Piece(tester, 0, 2, 2), 0, {1}), {1});
  EXPECT_EQ(Rows(tester, {1}), (std::vector<float>{-0.25f}));
}

TEST(TableGroupTest, RowsTravelInHalfTheBytes) {
  StoreTester tester(TwoTables("async {}"));
  PushRowsChunk chunk = With(Piece(tester, 0, 0, 0), 1, {1, 2});
  chunk.set_encoding(F16);
  Apply(tester, chunk, {0.5f, -3});
  EXPECT_EQ(Rows(tester, {1, 2}, 1), (std::vector<float>{-0.5f, 3}));
  PullRowsChunk request = Request(tester, 0, ListOf(1, {1, 2}), LatestWant());
  request.mutable_want()->set_encoding(BF16);
  const auto result = LookUp(tester, request);
  EXPECT_EQ(result->answer->bytes, 4u);
  EXPECT_EQ(result->answer->header.encoding(), BF16);
}

TEST(TableGroupTest, AListIsSentOnceAndNamedAfterThat) {
  StoreTester tester(TwoTables("async {}"));
  IdList named;
  named.set_table(1);
  named.set_count(2);
  named.set_name(77);
  PushRowsChunk chunk = Piece(tester, 0, 0, 0);
  *chunk.add_list() = named;
  const auto unknown = Apply(tester, chunk, {1, 2});
  EXPECT_TRUE(unknown->reply->unknown_list());
  EXPECT_TRUE(LookUp(tester, Request(tester, 0, named, LatestWant()))
                  ->answer->header.unknown_list());
  LookUp(tester, Request(tester, 0, ListOf(1, {4, 8}, 77), LatestWant()));
  const auto known = Apply(tester, chunk, {1, 2});
  EXPECT_EQ(OutcomeOf(known), Receipt::ACCEPTED);
  EXPECT_EQ(Rows(tester, {4, 8}, 1), (std::vector<float>{-1, -2}));
  // Another slot's names are its own.
  PushRowsChunk other = Piece(tester, 1, 0, 0);
  *other.add_list() = named;
  EXPECT_TRUE(Apply(tester, other, {1, 2})->reply->unknown_list());
}

// -------------------------------------------------------------- bad input

TEST(TableGroupTest, BadInputIsRefusedAndNamed) {
  StoreTester tester(TwoTables("async {}", 2, "shard_count: 2"));
  const auto refused = [&](const PushRowsChunk& chunk,
                           const std::vector<float>& gradients) {
    const auto result = Apply(tester, chunk, gradients);
    EXPECT_EQ(result->reply.status().code(),
              absl::StatusCode::kInvalidArgument);
    return std::string(result->reply.status().message());
  };
  uint64_t mine = 0;
  while (ShardOfId(mine, 2) != 0) {
    ++mine;
  }
  uint64_t theirs = 0;
  while (ShardOfId(theirs, 2) != 1) {
    ++theirs;
  }
  const PushRowsChunk empty = Piece(tester, 0, 0, 0);
  EXPECT_THAT(refused(With(empty, 7, {mine}), {1}), HasSubstr("table 7 of 2"));
  EXPECT_THAT(refused(With(empty, 1, {theirs}), {1}), HasSubstr("of shard 1"));
  EXPECT_THAT(refused(With(empty, 0, {mine}), {1}), HasSubstr("bytes"));
  PushRowsChunk twice = empty;
  *twice.add_list() = ListOf(1, {mine});
  twice.mutable_list(0)->set_count(2);
  twice.mutable_list(0)->mutable_deltas()->append(11, '\xff');
  EXPECT_THAT(refused(twice, {1, 1}), HasSubstr("table \"u\""));
  PushRowsChunk weight = empty;
  weight.mutable_push()->set_weight(-1);
  EXPECT_THAT(refused(weight, {}), HasSubstr("weight: -1"));
  PushRowsChunk rate = empty;
  rate.add_rate()->set_table(5);
  EXPECT_THAT(refused(rate, {}), HasSubstr("rate of table 5"));
  PushRowsChunk nothing = empty;
  nothing.clear_push();
  EXPECT_THAT(refused(nothing, {}), HasSubstr("`push`"));

  PullRowsChunk large = Request(tester, 0, ListOf(0, {mine}), LatestWant());
  large.mutable_list(0)->set_count(kListIdsMax);
  EXPECT_THAT(LookUp(tester, large)->answer.status().message(),
              HasSubstr("ask in pieces"));
  PullRowsChunk reader = Request(tester, 0, ListOf(0, {mine}), LatestWant());
  reader.mutable_sender()->set_generation(0);
  EXPECT_EQ(LookUp(tester, reader)->answer.status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Rows(tester, {mine}, 1), (std::vector<float>{0}));
}

TEST(TableGroupTest, ABadTableIsRefusedAtDeclare) {
  const auto refused = [](const std::string& table) {
    DeclareRequest request;
    *request.mutable_declaration() = ParseDeclaration(absl::StrCat(
        "variable { name: 'w' shape: 4 } "
        "group { optimizer { sgd {} } schedule { learning_rate: 1 } } "
        "update { async {} } table { name: 'a' dim: 1 "
        "schedule { learning_rate: 1 } } ",
        table));
    return std::string(
        (*Store::Create({}))->Declare(request).status().message());
  };
  EXPECT_THAT(refused("table { name: 'a' dim: 1 }"),
              HasSubstr("table[1].name: 'a' is that of table[0] already"));
  EXPECT_THAT(refused("table { dim: 1 }"),
              HasSubstr("table[1].name: '' is not 1 to 64"));
  EXPECT_THAT(refused("table { name: 'b' }"), HasSubstr("table[1].dim: 0"));
  EXPECT_THAT(refused("table { name: 'b' dim: 70000 }"), HasSubstr("65536"));
  EXPECT_THAT(refused("table { name: 'b' dim: 1 }"), HasSubstr("schedule"));
  EXPECT_THAT(refused("table { name: 'b' dim: 1 schedule { learning_rate: 1 } "
                      "initializer { he_normal {} } }"),
              HasSubstr("no fan in"));
  EXPECT_THAT(refused("table { name: 'b' dim: 1 schedule { learning_rate: 1 } "
                      "update: TOP_K }"),
              HasSubstr("INT8"));
}

// ------------------------------------------------------------------- sync

// Contribution m's gradient of row `id`.
float GradientOf(uint32_t m, uint64_t id) {
  return UnitFloat(Philox(m, 0, id)[0]) - 0.5f;
}

std::vector<uint64_t> RowsOf(uint32_t m) { return {m, m + 1, 10, 20 + m % 2}; }

float WeightOfContribution(uint32_t m) { return 1.0f + 0.5f * (m % 3); }

PushRowsChunk Contribution(const StoreTester& tester, int slots, uint64_t step,
                           uint32_t m, uint32_t n) {
  const int slot = static_cast<int>(m) % slots;
  const uint64_t per_step = (n - slot + slots - 1) / slots;
  PushRowsChunk chunk =
      Piece(tester, slot, step * per_step + m / slots, step, m);
  chunk.mutable_push()->set_weight(WeightOfContribution(m));
  return With(chunk, 1, RowsOf(m));
}

std::vector<float> GradientsOf(uint32_t m) {
  std::vector<float> gradients;
  for (const uint64_t id : RowsOf(m)) {
    gradients.push_back(GradientOf(m, id));
  }
  return gradients;
}

// The rows 0..30 after `steps` steps of n contributions, by definition.
std::vector<float> Expected(uint32_t n, int steps) {
  std::vector<float> rows(31);
  for (int step = 0; step < steps; ++step) {
    float weight = 0;
    std::vector<float> sums(rows.size());
    for (uint32_t m = 0; m < n; ++m) {
      weight += WeightOfContribution(m);
      for (const uint64_t id : RowsOf(m)) {
        sums[id] += WeightOfContribution(m) * GradientOf(m, id);
      }
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] -= sums[i] / weight;
    }
  }
  return rows;
}

std::vector<uint64_t> AllIds() {
  std::vector<uint64_t> ids(31);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = i;
  }
  return ids;
}

TEST(ShardTablesSyncTest, SumsInIndexOrderWhateverTheOrderOfArrival) {
  constexpr uint32_t kContributions = 6;
  for (int round = 0; round < 20; ++round) {
    StoreTester tester(TwoTables(
        absl::StrCat("sync { contributions: ", kContributions, " }"), 3));
    RandomStream random(static_cast<uint64_t>(round));
    for (uint64_t step = 0; step < 3; ++step) {
      // Each slot sends its own in order; slots by chance.
      std::vector<uint32_t> next = {0, 1, 2};
      for (uint32_t sent = 0; sent < kContributions;) {
        uint32_t& m = next[random.NextBelow(3)];
        if (m < kContributions) {
          EXPECT_EQ(
              OutcomeOf(Apply(tester,
                              Contribution(tester, 3, step, m, kContributions),
                              GradientsOf(m))),
              Receipt::ACCEPTED);
          m += 3;
          ++sent;
        }
      }
    }
    EXPECT_EQ(Rows(tester, AllIds(), 1), Expected(kContributions, 3));
  }
}

TEST(ShardTablesSyncTest, AVersionWaitsForItsStepAndTheOneBeforeStays) {
  StoreTester tester(TwoTables("sync { contributions: 2 }"));
  const auto next =
      LookUp(tester, Request(tester, 0, ListOf(1, {10}), VersionWant(1)));
  Apply(tester, Contribution(tester, 2, 0, 1, 2), GradientsOf(1));
  EXPECT_FALSE(next->done);
  Apply(tester, Contribution(tester, 2, 0, 0, 2), GradientsOf(0));
  ASSERT_TRUE(next->done);
  EXPECT_EQ(next->answer->header.version(), 1u);
  EXPECT_EQ(next->rows(), (std::vector<float>{Expected(2, 1)[10]}));
  const auto before =
      LookUp(tester, Request(tester, 1, ListOf(1, {10, 30}), VersionWant(0)));
  ASSERT_TRUE(before->answer.ok()) << before->answer.status();
  EXPECT_EQ(before->answer->header.version(), 0u);
  EXPECT_EQ(before->rows(), (std::vector<float>{0, 0}));
  Apply(tester, Contribution(tester, 2, 1, 0, 2), GradientsOf(0));
  Apply(tester, Contribution(tester, 2, 1, 1, 2), GradientsOf(1));
  const auto gone =
      LookUp(tester, Request(tester, 1, ListOf(1, {10}), VersionWant(0)));
  EXPECT_EQ(gone->answer.status().code(), absl::StatusCode::kAborted);
}

TEST(ShardTablesSyncTest, AWaitEndsAtItsDeadline) {
  StoreTester tester(TwoTables("sync { contributions: 2 }"));
  const auto lookup =
      LookUp(tester, Request(tester, 0, ListOf(1, {10}), VersionWant(1, 100)));
  tester.clock.Advance(std::chrono::milliseconds(99));
  tester.store->ExpireWaits();
  EXPECT_FALSE(lookup->done);
  tester.clock.Advance(std::chrono::milliseconds(2));
  tester.store->ExpireWaits();
  ASSERT_TRUE(lookup->done);
  EXPECT_TRUE(lookup->answer->header.not_yet());
}

TEST(ShardTablesSyncTest, TheFirstOfTwoResultsCounts) {
  StoreTester tester(TwoTables("sync { contributions: 2 }"));
  Apply(tester, Contribution(tester, 2, 0, 0, 2), GradientsOf(0));
  // Slot 1 computes contribution 0 once more.
  PushRowsChunk again = With(Piece(tester, 1, 0, 0, 0), 1, RowsOf(0));
  EXPECT_EQ(OutcomeOf(Apply(tester, again, {9, 9, 9, 9})), Receipt::DUPLICATE);
  PushRowsChunk other = Contribution(tester, 2, 0, 1, 2);
  other.mutable_push()->set_sequence(1);
  Apply(tester, other, GradientsOf(1));
  EXPECT_EQ(Rows(tester, AllIds(), 1), Expected(2, 1));
}

TEST(ShardTablesSyncTest, AResultThatComesAfterItsStepIsADuplicate) {
  StoreTester tester(TwoTables("sync { contributions: 2 }"));
  Apply(tester, Contribution(tester, 2, 0, 0, 2), GradientsOf(0));
  PushRowsChunk other = Contribution(tester, 2, 0, 1, 2);
  other.mutable_sender()->set_slot(0);
  other.mutable_push()->set_sequence(1);
  ASSERT_EQ(OutcomeOf(Apply(tester, other, GradientsOf(1))), Receipt::ACCEPTED);
  const std::vector<float> rows = Rows(tester, AllIds(), 1);
  const auto late =
      Apply(tester, Contribution(tester, 2, 0, 1, 2), GradientsOf(1));
  EXPECT_EQ(OutcomeOf(late), Receipt::DUPLICATE) << late->reply.status();
  EXPECT_EQ(Rows(tester, AllIds(), 1), rows);
  EXPECT_EQ(tester.store->Hello().slot(1).next_sequence_max(), 1u);
}

TEST(ShardTablesSyncTest, ARetiredSlotsContributionsArePassed) {
  StoreTester tester(TwoTables("sync { contributions: 2 }"));
  ASSERT_TRUE(tester.SetSlot(1, 1, true).ok());
  Apply(tester, Contribution(tester, 2, 0, 0, 2), GradientsOf(0));
  EXPECT_EQ(Rows(tester, {10}, 1), (std::vector<float>{-GradientOf(0, 10)}));
  const HelloReply hello = tester.store->Hello();
  EXPECT_EQ(hello.slot(1).next_sequence_max(), 1u);
}

TEST(ShardTablesSyncTest, TheAwaitedUpdateFindsRoomAndOthersAreDeferred) {
  StoreTester tester(
      TwoTables("sync { contributions: 3 }", 3, "out_of_order_bytes: 40"));
  const std::vector<uint64_t> eight = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<float> ones(8, 1.0f);
  EXPECT_EQ(
      OutcomeOf(Apply(tester, With(Piece(tester, 1, 0, 0, 1), 1, eight), ones)),
      Receipt::ACCEPTED);
  EXPECT_EQ(
      OutcomeOf(Apply(tester, With(Piece(tester, 2, 0, 0, 2), 1, eight), ones)),
      Receipt::DEFERRED);
  EXPECT_EQ(
      OutcomeOf(Apply(tester, With(Piece(tester, 0, 0, 0, 0), 1, eight), ones)),
      Receipt::ACCEPTED);
  EXPECT_EQ(
      OutcomeOf(Apply(tester, With(Piece(tester, 2, 0, 0, 2), 1, eight), ones)),
      Receipt::ACCEPTED);
  EXPECT_EQ(Rows(tester, {8, 9}, 1), (std::vector<float>{-1, 0}));
}

// ------------------------------------------------------ bounded staleness

TEST(TableGroupTest, AFastWorkerWaitsForTheSlowest) {
  StoreTester tester(TwoTables("bounded_staleness { bound: 1 }"));
  Apply(tester, Piece(tester, 0, 0, 0), {});
  Apply(tester, Piece(tester, 0, 1, 0), {});
  const auto lookup =
      LookUp(tester, Request(tester, 0, ListOf(1, {1}), LatestWant(2)));
  EXPECT_FALSE(lookup->done);
  Apply(tester, Piece(tester, 1, 0, 0), {});
  EXPECT_TRUE(lookup->done);
}

TEST(TableGroupTest, ReportsRowsAndHotIds) {
  StoreTester tester(TwoTables("async {}"));
  Apply(tester, With(Piece(tester, 0, 0, 0), 1, {4, 5}), {1, 1});
  Apply(tester, With(Piece(tester, 0, 1, 1), 1, {5}), {1});
  GetStatusRequest request;
  request.set_hot_ids(1);
  const PsStatus status = tester.store->GetStatus(request);
  ASSERT_EQ(status.table_size(), 2);
  EXPECT_EQ(status.table(1).rows(), 2u);
  EXPECT_EQ(status.table(1).rows_updated(), 3u);
  ASSERT_EQ(status.table(1).hot_id_size(), 1);
  EXPECT_EQ(status.table(1).hot_id(0), 5u);
  EXPECT_EQ(status.table(1).hot_updates(0), 2u);
}

TEST(TableGroupTest, ShrinksOnDemand) {
  StoreTester tester(TwoTables("async {}"));
  Apply(tester, With(Piece(tester, 0, 0, 0), 1, {4, 5, 6}), {1, 1, 1});
  ShrinkRequest request;
  *request.mutable_sender() = tester.SenderOf(0);
  request.set_table("u");
  for (const uint64_t above : {uint64_t{1} << 57, ~uint64_t{0}}) {
    request.set_rows_max(above);
    EXPECT_EQ(tester.store->Shrink(request)->rows(), 0u);
  }
  request.set_rows_max(0);
  EXPECT_EQ(tester.store->Shrink(request)->rows(), 3u);
  EXPECT_EQ(Rows(tester, {4}, 1), (std::vector<float>{0}));
  request.set_table("v");
  EXPECT_THAT(tester.store->Shrink(request).status().message(),
              HasSubstr("no table \"v\""));
}

}  // namespace
}  // namespace weir
