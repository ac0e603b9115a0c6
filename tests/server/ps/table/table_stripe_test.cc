// Which rows a table keeps: admission, expiry, memory budget.
#include "server/ps/table/table_stripe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "common/job/row_age.h"
#include "common/math/random.h"
#include "gmock/gmock.h"
#include "tests/server/ps/table/id_of_hash.h"
#include "tests/server/ps/table/table_tester.h"

namespace weir {
namespace {

// Counts what it hands out.
class CountingArena : public Arena {
 public:
  void* Allocate(size_t bytes) override {
    used_ += static_cast<int64_t>(bytes);
    return Arena::Heap()->Allocate(bytes);
  }
  void Free(void* memory, size_t bytes) override {
    used_ -= static_cast<int64_t>(bytes);
    Arena::Heap()->Free(memory, bytes);
  }
  int64_t used() const { return used_; }

 private:
  int64_t used_ = 0;
};

std::set<uint64_t> Ids(Table* table) {
  const RowRecords all = ExportAll(table);
  return {all.ids.begin(), all.ids.end()};
}

// ------------------------------------------------------------------- crowds

TEST(CrowdTest, IdsChosenToShareAPrefixGetNoMoreRowsThanTheirPlaceHas) {
  CountingArena arena;
  TableOptions options = SmallOptions();
  options.stripes = 1;
  options.arena = &arena;
  const auto table = MakeTable(options);
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < 700; ++i) {
    ids.push_back(IdOfHash(uint64_t{0xabcdef1234} << 24 | i << 8));
  }
  Read(table.get(), ids);
  EXPECT_EQ(table->Report(0).rows, RowIndex::kMaxRows);
  EXPECT_EQ(table->Report(0).counts.not_admitted, 700 - RowIndex::kMaxRows);
  EXPECT_LT(table->Report(0).bytes, 4 << 20);
  // They read their initial values, as ids that are not admitted do.
  const std::vector<float> initial = Read(table.get(), {ids.back()});
  EXPECT_EQ(PushAll(table.get(), {ids.back()}, 1).not_admitted, 1);
  EXPECT_EQ(Read(table.get(), {ids.back()}), initial);
}

// ---------------------------------------------------------------- admission

TableOptions AdmitAt(uint32_t count) {
  TableOptions options = SmallOptions("sgd {}");
  options.admission.kind = AdmissionPolicy::Kind::kCount;
  options.admission.count = count;
  return options;
}

TEST(AdmissionTest, MakesARowAtTheKthTrainingLookup) {
  const auto table = MakeTable(AdmitAt(3));
  const std::vector<float> initial = Read(table.get(), {5});
  EXPECT_EQ(PushAll(table.get(), {5}, 1).not_admitted, 1);
  for (int i = 0; i < 10; ++i) {  // reads count for nothing
    EXPECT_EQ(Read(table.get(), {5}, Table::Mode::kRead), initial);
  }
  EXPECT_EQ(Read(table.get(), {5}), initial);
  EXPECT_EQ(table->Report(0).rows, 0);
  EXPECT_EQ(Read(table.get(), {5}), initial);
  EXPECT_EQ(table->Report(0).rows, 1);
  EXPECT_EQ(table->Report(0).counts.not_admitted, 3);
  EXPECT_EQ(PushAll(table.get(), {5}, 1).applied, 1);
  EXPECT_NE(Read(table.get(), {5}), initial);
}

TEST(AdmissionTest, KeepsIdsThatComeOnceOut) {
  const auto table = MakeTable(AdmitAt(2));
  RandomStream random(2);
  for (int step = 0; step < 100; ++step) {
    std::vector<uint64_t> ids = Range(0, 50);  // hot
    for (int i = 0; i < 500; ++i) {
      ids.push_back(random.Next64());
    }
    Read(table.get(), ids);
  }
  EXPECT_GE(table->Report(0).rows, 50);
  EXPECT_LT(table->Report(0).rows, 50 + 500);  // 1% of those that came once
}

TEST(AdmissionTest, AdmitsWithItsProbability) {
  TableOptions options = SmallOptions("sgd {}");
  options.admission.kind = AdmissionPolicy::Kind::kProbability;
  options.admission.probability = 0.25;
  const auto table = MakeTable(options);
  const std::vector<uint64_t> ids = Range(0, 10000);
  // Updates and reads draw nothing.
  EXPECT_EQ(PushAll(table.get(), ids, 1).not_admitted, 10000);
  Read(table.get(), ids, Table::Mode::kRead);
  double expected = 0;
  for (int touch = 0; touch < 3; ++touch) {
    Read(table.get(), ids);
    expected += 0.25 * (10000 - expected);
    EXPECT_NEAR(static_cast<double>(table->Report(0).rows), expected,
                5 * std::sqrt(10000 * 0.25));
  }
}

// ------------------------------------------------------------------- expiry

TEST(ExpiryTest, ARowThatIsTooOldIsGoneAtOnce) {
  TableOptions options = SmallOptions("sgd {}");
  options.age_max = 10;
  const auto table = MakeTable(options);
  table->SetClock(100);
  const std::vector<float> initial = Read(table.get(), {1});
  PushAll(table.get(), {1, 2}, 1);
  const std::vector<float> trained = Read(table.get(), {1});
  ASSERT_NE(trained, initial);
  table->SetClock(110);
  EXPECT_EQ(Read(table.get(), {1}, Table::Mode::kRead), trained);
  EXPECT_EQ(Ids(table.get()), (std::set<uint64_t>{1, 2}));
  table->SetClock(111);
  EXPECT_EQ(Read(table.get(), {1}, Table::Mode::kRead), initial);
  EXPECT_EQ(Ids(table.get()), (std::set<uint64_t>{}));
  EXPECT_EQ(Read(table.get(), {1}), initial);  // begins anew
  EXPECT_EQ(Ids(table.get()), (std::set<uint64_t>{1}));
  EXPECT_EQ(ExportAll(table.get()).updates, std::vector<uint32_t>{0});
  EXPECT_EQ(table->Report(0).counts.expired, 1);
  EXPECT_EQ(table->Report(0).rows, 2);
  EXPECT_EQ(table->Shrink({}).rows, 1);
  EXPECT_EQ(table->Report(0).rows, 1);
}

TEST(ExpiryTest, ATouchKeepsARow) {
  TableOptions options = SmallOptions("sgd {}");
  options.age_max = 10;
  const auto table = MakeTable(options);
  PushAll(table.get(), {1, 2, 3}, 1);
  for (uint32_t now = 0; now <= 50; now += 5) {
    table->SetClock(now);
    Read(table.get(), {1});
    PushAll(table.get(), {2}, 1);
    Read(table.get(), {3}, Table::Mode::kRead);
  }
  EXPECT_EQ(Ids(table.get()), (std::set<uint64_t>{1, 2}));
}

constexpr uint64_t kWrap = uint64_t{1} << 32;  // a row keeps 32 bits

TEST(ExpiryTest, AgesGoOnWhereTheClockPassesThirtyTwoBits) {
  TableOptions options = SmallOptions("sgd {}");
  options.age_max = 10;
  const auto table = MakeTable(options);
  table->SetClock(kWrap - 5);
  PushAll(table.get(), {1, 2}, 1);
  table->SetClock(kWrap + 5);
  PushAll(table.get(), {2}, 1);
  EXPECT_EQ(Ids(table.get()), (std::set<uint64_t>{1, 2}));
  table->SetClock(kWrap + 6);
  EXPECT_EQ(Ids(table.get()), (std::set<uint64_t>{2}));
  EXPECT_EQ(table->Shrink({}).rows, 1);
}

TEST(ExpiryTest, TheLeastRecentRowGoesFirstWhereTheClockPassesThirtyTwoBits) {
  TableOptions options = SmallOptions("sgd {}");
  options.stripes = 1;
  const auto table = MakeTable(options);
  table->SetClock(kWrap - 1);
  PushAll(table.get(), {1, 2, 3}, 1);
  table->SetClock(kWrap + 1);
  PushAll(table.get(), {2}, 1);
  ShrinkOptions shrink;
  shrink.rows_max = 1;
  table->Shrink(shrink);
  EXPECT_EQ(Ids(table.get()), std::set<uint64_t>{2});
}

TEST(ExpiryTest, TheClockNeverGoesBack) {
  const auto table = MakeTable(SmallOptions("sgd {}"));
  table->SetClock(100);
  table->SetClock(40);
  EXPECT_EQ(table->clock(), 100u);
}

TEST(ExpiryTest, ARowThatIsGoneStaysGoneHoweverFarTheClockGoes) {
  TableOptions options = SmallOptions("sgd {}");
  options.age_max = kRowAgeMax;
  const auto table = MakeTable(options);
  table->SetClock(7);
  PushAll(table.get(), {1}, 1);
  const std::vector<float> trained = Read(table.get(), {1}, Table::Mode::kRead);
  for (uint64_t now = 7; now < 3 * kWrap; now += kAgeLimitPeriod / 2) {
    table->SetClock(now);
    table->LimitAges();
    EXPECT_EQ(Ids(table.get()).count(1), now - 7 <= kRowAgeMax ? 1u : 0u);
  }
  table->SetClock(7 + 3 * kWrap);
  EXPECT_NE(Read(table.get(), {1}, Table::Mode::kRead), trained);
}

TEST(ExpiryTest, AnAgeThatCannotBeToldIsRefused) {
  TableOptions options = SmallOptions("sgd {}");
  options.age_max = kRowAgeMax + 1;
  EXPECT_THAT(options.Validate().message(), testing::HasSubstr("3221225473"));
}

// ------------------------------------------------------------------- budget

TEST(BudgetTest, IsNeverExceeded) {
  for (const EvictionOrder order :
       {EvictionOrder::kLeastRecent, EvictionOrder::kLeastFrequent}) {
    for (const AdmissionPolicy::Kind kind :
         {AdmissionPolicy::Kind::kAlways, AdmissionPolicy::Kind::kCount}) {
      CountingArena arena;
      TableOptions options = SmallOptions("adagrad {}", 16);
      options.arena = &arena;
      options.memory_bytes_max = 4 << 20;
      options.eviction = order;
      options.admission = {kind, 1, 1, 1 << 18};
      const auto table = MakeTable(options);
      RandomStream random(1);
      for (uint32_t step = 0; step < 300; ++step) {
        table->SetClock(step);
        std::vector<uint64_t> ids;
        for (int i = 0; i < 1000; ++i) {
          ids.push_back(random.NextBelow(1 << 20));
        }
        Read(table.get(), ids);
        ASSERT_LE(arena.used(), 4 << 20);
        PushAll(table.get(), ids, 1);
        ASSERT_LE(table->Report(0).bytes, 4 << 20);
        ASSERT_LE(arena.used(), table->Report(0).bytes);
      }
      const TableFigures report = table->Report(0);
      EXPECT_GT(report.counts.evicted, 100000);
      // It is used, too: rows of 144 bytes, and segments with room.
      EXPECT_GT(report.rows, (4 << 20) * 3 / 4 / 160);
      EXPECT_EQ(report.rows, report.counts.created - report.counts.evicted);
    }
  }
}

// However small a stripe's share is.
TEST(BudgetTest, IsUsedUp) {
  for (const int64_t budget : {1 << 20, 3'448'004, 16 << 20}) {
    TableOptions options = SmallOptions("adagrad {}", 16);
    options.stripes = 64;
    options.memory_bytes_max = budget;
    const auto table = MakeTable(options);
    const uint64_t ids = static_cast<uint64_t>(budget) / 100;
    for (uint64_t first = 0; first < ids; first += 1000) {
      Read(table.get(), Range(first, first + 1000));
      ASSERT_LE(table->Report(0).bytes, budget);
    }
    EXPECT_GT(table->Report(0).bytes, budget * 9 / 10);
    // Rows of 144 bytes; the index has 4 KiB for 64 stripes at least, and for
    // every 320 to 640 rows.
    EXPECT_GT(table->Report(0).rows,
              (budget - int64_t{64} * 4096) * 8 / 10 / 157)
        << budget;
  }
}

TEST(BudgetTest, WhatTheFilterLeavesHoldsRows) {
  TableOptions options = SmallOptions("sgd {}", 16);
  options.stripes = 64;
  options.admission = {AdmissionPolicy::Kind::kCount, 1, 1, 16 << 20};
  options.memory_bytes_max = (16 << 20) + 64 * (4096 + 16 + 1024);
  const auto table = MakeTable(options);
  Read(table.get(), Range(0, 2000));
  // Eight rows of 80 bytes in each stripe.
  EXPECT_EQ(table->Report(0).rows, 64 * 8);
  EXPECT_LE(table->Report(0).bytes, options.memory_bytes_max);
}

// Half of the ids in use all the time, the others once.
std::set<uint64_t> AfterPressure(EvictionOrder order) {
  TableOptions options = SmallOptions("adagrad {}", 16);
  options.memory_bytes_max = 4 << 20;  // some 25000 rows
  options.eviction = order;
  const auto table = MakeTable(options);
  const std::vector<uint64_t> hot = Range(0, 5000);
  for (uint32_t step = 0; step < 200; ++step) {
    table->SetClock(step);
    if (order == EvictionOrder::kLeastRecent || step < 5) {
      Read(table.get(), hot);
      PushAll(table.get(), hot, 1);
    }
    const uint64_t first = 1'000'000 + uint64_t{step} * 1000;
    Read(table.get(), Range(first, first + 1000));
    PushAll(table.get(), Range(first, first + 1000), 1);
  }
  return Ids(table.get());
}

TEST(BudgetTest, LeastRecentlyUsedGoFirst) {
  const std::set<uint64_t> left = AfterPressure(EvictionOrder::kLeastRecent);
  for (const uint64_t id : Range(0, 5000)) {
    ASSERT_TRUE(left.contains(id));
  }
  // The latest of the others stay: nothing of the first half is left.
  EXPECT_GE(*left.lower_bound(1'000'000), 1'100'000u);
}

TEST(BudgetTest, LeastFrequentlyUsedGoFirst) {
  // Five updates long ago count more than one just now.
  const std::set<uint64_t> left = AfterPressure(EvictionOrder::kLeastFrequent);
  for (const uint64_t id : Range(0, 5000)) {
    ASSERT_TRUE(left.contains(id));
  }
}

TEST(BudgetTest, ABatchLargerThanTheBudgetReadsAndMovesWhatIsHeld) {
  TableOptions options = SmallOptions("sgd {}", 16);
  options.stripes = 1;
  options.memory_bytes_max = 300 << 10;  // some 3000 rows
  const auto table = MakeTable(options);
  const auto unbounded = MakeTable(SmallOptions("sgd {}", 16));
  const std::vector<uint64_t> ids = Range(0, 20000);
  EXPECT_EQ(Read(table.get(), ids), Read(unbounded.get(), ids));
  const UpdateReceipt receipt = PushAll(table.get(), ids, 1, 1);
  EXPECT_GT(receipt.not_admitted, 0);
  EXPECT_EQ(receipt.applied + receipt.not_admitted, 20000);
  EXPECT_LE(table->Report(0).bytes, 300 << 10);
  // Each row is as it began or has moved once; no row has another's values.
  PushAll(unbounded.get(), ids, 1, 1);
  const std::vector<float> moved = Read(unbounded.get(), ids);
  const RowRecords left = ExportAll(table.get());
  EXPECT_GT(left.ids.size(), 1000u);
  for (size_t i = 0; i < left.ids.size(); ++i) {
    ASSERT_EQ(left.updates[i], 1u);
    ASSERT_TRUE(std::equal(&left.floats[i * 16], &left.floats[i * 16] + 16,
                           &moved[left.ids[i] * 16]));
  }
}

}  // namespace
}  // namespace weir
