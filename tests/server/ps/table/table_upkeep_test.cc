// Export, import, shrink and report.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "common/job/row_hash.h"
#include "common/math/random.h"
#include "server/ps/table/table.h"
#include "tests/server/ps/table/table_tester.h"

namespace weir {
namespace {

// Trains `steps` steps on ids [begin, end), with gradients that depend on id
// and step alone.
void Train(Table* table, uint64_t begin, uint64_t end, int first_step,
           int steps) {
  for (int step = first_step; step < first_step + steps; ++step) {
    table->SetClock(static_cast<uint32_t>(step));
    std::vector<uint64_t> ids;
    std::vector<float> gradients;
    for (uint64_t id = begin; id < end; ++id) {
      if ((id + static_cast<uint64_t>(step)) % 3 != 0) {
        ids.push_back(id);
        for (int k = 0; k < table->options().dim; ++k) {
          gradients.push_back(UnitFloat(static_cast<uint32_t>(
              MixKey(id, static_cast<uint64_t>(step * 100 + k)))));
        }
      }
    }
    Read(table, ids);
    Push(table, ids, gradients);
  }
}

// Through files' eyes: what is exported here goes in there.
void Restore(Table* from, Table* to) {
  ExportCursor cursor;
  for (RowRecords some; from->Export(&cursor, &some);) {
    ASSERT_TRUE(to->Import(some).ok());
  }
  to->SetStep(from->step());
  to->SetClock(from->clock());
}

TEST(ExportTest, ComesInTheOrderOfHashesWhateverTheHistory) {
  const auto one = MakeTable(SmallOptions());
  const auto two = MakeTable(SmallOptions());
  std::vector<uint64_t> ids = Range(0, 20000);
  Read(two.get(), Range(30000, 90000));
  one->SetClock(10);
  two->SetClock(10);
  PushAll(one.get(), ids, 1);
  std::reverse(ids.begin(), ids.end());
  PushAll(two.get(), ids, 1);
  two->Shrink({.age_max = 5});
  const RowRecords all = ExportAll(one.get());
  EXPECT_EQ(all.ids.size(), 20000u);
  for (size_t i = 1; i < all.ids.size(); ++i) {
    ASSERT_LT(IndexHash(all.ids[i - 1]), IndexHash(all.ids[i]));
  }
  EXPECT_EQ(ExportAll(two.get()), all);
}

TEST(ExportTest, MeetsEveryRowOnceWhileTheTableGrows) {
  const auto table = MakeTable(SmallOptions("sgd {}", 1));
  const std::vector<uint64_t> ids = Range(0, 30000);
  Read(table.get(), ids);
  std::vector<uint64_t> met;
  ExportCursor cursor;
  uint64_t next = 1'000'000;
  for (RowRecords some; table->Export(&cursor, &some);) {
    for (const uint64_t id : some.ids) {
      if (id < 30000) {
        met.push_back(id);
      }
    }
    Read(table.get(), Range(next, next + 300));  // segments split
    next += 300;
  }
  std::sort(met.begin(), met.end());
  EXPECT_EQ(met, ids);
}

TEST(ImportTest, ARestoredTableTakesTheSameNextSteps) {
  for (const char* optimizer : std::vector<const char*>{
           "sgd {}", "adagrad {}", "rowwise_adagrad {}", "adam {}",
           "adam { per_row_step: true }", "ftrl { l1: 0.01 }",
           "ftrl { l1: 0.01 l21: 0.02 }"}) {
    const auto table = MakeTable(SmallOptions(optimizer));
    Train(table.get(), 0, 3000, 1, 5);
    TableOptions options = SmallOptions(optimizer);
    options.stripes = 32;  // another machine's choice
    const auto restored = MakeTable(options);
    Restore(table.get(), restored.get());
    EXPECT_EQ(ExportAll(restored.get()), ExportAll(table.get()));
    Train(table.get(), 1000, 4000, 6, 5);
    Train(restored.get(), 1000, 4000, 6, 5);
    EXPECT_EQ(ExportAll(restored.get()), ExportAll(table.get()));
  }
}

TEST(ImportTest, RowsOfTwoShardsGoIntoThree) {
  std::vector<std::unique_ptr<Table>> two;
  std::vector<std::unique_ptr<Table>> three;
  for (int shards : {2, 3}) {
    for (int s = 0; s < shards; ++s) {
      TableOptions options = SmallOptions();
      options.shard = s;
      options.shard_count = shards;
      (shards == 2 ? two : three).push_back(MakeTable(options));
    }
  }
  const auto whole = MakeTable(SmallOptions());
  for (const uint64_t id : Range(0, 5000)) {
    const float g = static_cast<float>(id % 11);
    PushAll(two[static_cast<size_t>(ShardOfId(id, 2))].get(), {id}, g);
    PushAll(whole.get(), {id}, g);
  }
  for (const auto& from : two) {
    const RowRecords all = ExportAll(from.get());
    for (size_t i = 0; i < all.ids.size(); ++i) {
      RowRecords one = {{all.ids[i]},
                        {all.touched[i]},
                        {all.updates[i]},
                        {&all.floats[i * 8], &all.floats[i * 8] + 8}};
      ASSERT_TRUE(three[static_cast<size_t>(ShardOfId(all.ids[i], 3))]
                      ->Import(one)
                      .ok());
    }
  }
  const auto merged = MakeTable(SmallOptions());
  for (const auto& shard : three) {
    EXPECT_TRUE(merged->Import(ExportAll(shard.get())).ok());
  }
  EXPECT_EQ(ExportAll(merged.get()), ExportAll(whole.get()));
}

TEST(ImportTest, ReplacesARowAndSkipsAdmission) {
  TableOptions options = SmallOptions("sgd {}", 2);
  options.admission.kind = AdmissionPolicy::Kind::kCount;
  options.admission.count = 9;
  const auto table = MakeTable(options);
  const RowRecords first = {{3}, {1}, {7}, {1.0f, 2.0f}};
  const RowRecords second = {{3}, {2}, {8}, {3.0f, 4.0f}};
  ASSERT_TRUE(table->Import(first).ok());
  EXPECT_EQ(ExportAll(table.get()), first);
  ASSERT_TRUE(table->Import(second).ok());
  EXPECT_EQ(ExportAll(table.get()), second);
}

TEST(ImportTest, RefusesArraysThatDoNotFit) {
  const auto table = MakeTable(SmallOptions("sgd {}", 2));
  EXPECT_EQ(table->Import({{3}, {1}, {7}, {1.0f}}).message(),
            "table \"user\": 1 ids, 1 clocks, 1 counts and 1 floats; a row has "
            "2");
  EXPECT_FALSE(table->Import({{3}, {}, {7}, {1.0f, 2.0f}}).ok());
}

TEST(ImportTest, StaysWithinTheBudget) {
  const auto from = MakeTable(SmallOptions("sgd {}", 16));
  Read(from.get(), Range(0, 50000));
  TableOptions options = SmallOptions("sgd {}", 16);
  options.memory_bytes_max = 1 << 20;
  const auto to = MakeTable(options);
  Restore(from.get(), to.get());
  EXPECT_LE(to->Report(0).bytes, 1 << 20);
  EXPECT_GT(to->Report(0).rows, 5000);
}

TEST(ShrinkTest, AShrunkAndRestoredTableEqualsOneThatNeverHeldTheDroppedRows) {
  for (const char* optimizer :
       std::vector<const char*>{"adagrad {}", "adam {}", "ftrl {}"}) {
    const auto table = MakeTable(SmallOptions(optimizer));
    const auto never = MakeTable(SmallOptions(optimizer));
    Train(table.get(), 100'000, 150'000, 1, 3);  // to be dropped
    PushAll(never.get(), {}, 0);                 // the same steps
    PushAll(never.get(), {}, 0);
    PushAll(never.get(), {}, 0);
    for (Table* one : {table.get(), never.get()}) {
      Train(one, 0, 5000, 20, 4);
    }
    const ShrinkReceipt receipt = table->Shrink({.age_max = 10});
    EXPECT_EQ(receipt.rows, 50'000);
    EXPECT_GT(receipt.bytes,
              int64_t{50'000} * table->row_floats() * int64_t{sizeof(float)});
    EXPECT_EQ(ExportAll(table.get()), ExportAll(never.get()));
    const auto restored = MakeTable(SmallOptions(optimizer));
    Restore(table.get(), restored.get());
    // Dropped rows come back as new, everywhere.
    for (Table* one : {table.get(), restored.get(), never.get()}) {
      Train(one, 4000, 120'000, 30, 2);
    }
    EXPECT_EQ(ExportAll(table.get()), ExportAll(never.get()));
    EXPECT_EQ(ExportAll(restored.get()), ExportAll(never.get()));
  }
}

TEST(ShrinkTest, KeepsTheMostRecentOrFrequentOfEachStripe) {
  for (const EvictionOrder order :
       {EvictionOrder::kLeastRecent, EvictionOrder::kLeastFrequent}) {
    TableOptions options = SmallOptions();
    options.stripes = 1;
    options.eviction = order;
    const auto table = MakeTable(options);
    for (uint32_t id = 0; id < 1000; ++id) {
      table->SetClock(id);  // recent: large ids
      for (uint32_t k = 0; k < (1099 - id) / 100; ++k) {
        PushAll(table.get(), {id}, 1);  // frequent: small ids
      }
      Read(table.get(), {id});
    }
    EXPECT_EQ(table->Shrink({.rows_max = 300}).rows, 700);
    EXPECT_EQ(table->Report(0).counts.shrunk, 700);
    RowRecords left = ExportAll(table.get());
    std::sort(left.ids.begin(), left.ids.end());
    EXPECT_EQ(left.ids, order == EvictionOrder::kLeastRecent ? Range(700, 1000)
                                                             : Range(0, 300));
  }
}

TEST(ShrinkTest, ABoundAboveAllRowsDropsNone) {
  const auto table = MakeTable(SmallOptions());
  Read(table.get(), Range(0, 1000));
  for (const int64_t rows_max : {int64_t{1} << 57, int64_t{1} << 62,
                                 std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(table->Shrink({.rows_max = rows_max}).rows, 0);
  }
}

TEST(ShrinkTest, ToNothing) {
  const auto table = MakeTable(SmallOptions());
  Read(table.get(), Range(0, 10000));
  EXPECT_EQ(table->Shrink({.rows_max = 0}).rows, 10000);
  EXPECT_EQ(table->Report(0).rows, 0);
  EXPECT_EQ(ExportAll(table.get()), RowRecords());
  Read(table.get(), Range(0, 10));
  EXPECT_EQ(table->Report(0).rows, 10);
}

TEST(ReportTest, NamesTheHotIds) {
  const auto table = MakeTable(SmallOptions());
  Read(table.get(), Range(0, 5000));
  for (uint64_t id = 0; id < 10; ++id) {
    for (uint64_t k = 0; k <= id / 2; ++k) {
      PushAll(table.get(), {id * 100}, 1);
    }
  }
  const TableFigures report = table->Report(3);
  EXPECT_EQ(report.rows, 5000);
  EXPECT_EQ(report.counts.created, 5000);
  EXPECT_EQ(report.payload_bytes, 5000 * 8 * 4);
  EXPECT_EQ(report.bytes, table->Report(0).bytes);
  EXPECT_EQ(report.hot, (std::vector<HotRow>{{800, 5}, {900, 5}, {600, 4}}));
  EXPECT_TRUE(table->Report(0).hot.empty());
  EXPECT_EQ(table->Report(10000).hot.size(), 5000u);
}

}  // namespace
}  // namespace weir
