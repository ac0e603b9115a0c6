#include "server/ps/table/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>
#include <numeric>
#include <string>

#include "common/job/initializer.h"
#include "common/job/row_hash.h"
#include "common/math/random.h"
#include "tests/server/ps/table/table_tester.h"

namespace weir {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> Initial(const TableOptions& options, uint64_t id) {
  std::vector<float> out(static_cast<size_t>(options.dim));
  FillInitialRow(options.init, RowInitKey(options.seed), id, options.dim,
                 out.data());
  return out;
}

TEST(RowHashTest, IsFixed) {
  // MurmurHash3's and SplitMix64's published values.
  EXPECT_EQ(ShardHash(0), 0u);
  EXPECT_EQ(ShardHash(1), 0xb456bcfc34c2cb2cu);
  EXPECT_EQ(IndexHash(0x9e3779b97f4a7c15u), 0xe220a8397b1dcdafu);
  EXPECT_EQ(ShardOfId(1, 4), 2);
  EXPECT_EQ(ShardOfId(~uint64_t{0}, 1), 0);
}

TEST(RowHashTest, SpreadsCountingIdsOverShards) {
  for (const int shards : {1, 2, 3, 7, 64}) {
    std::vector<int> count(static_cast<size_t>(shards));
    constexpr int kIds = 100000;
    for (uint64_t id = 0; id < kIds; ++id) {
      ++count[static_cast<size_t>(ShardOfId(id, shards))];
    }
    const double expected = kIds / static_cast<double>(shards);
    for (const int one : count) {
      EXPECT_NEAR(one, expected, 5 * std::sqrt(expected));
    }
  }
}

TEST(TableTest, ReadsInitialValuesOfAnyId) {
  const TableOptions options = SmallOptions();
  const auto table = MakeTable(options);
  const std::vector<uint64_t> ids = {0, ~uint64_t{0}, 7, uint64_t{1} << 63};
  std::vector<float> expected;
  for (const uint64_t id : ids) {
    const std::vector<float> row = Initial(options, id);
    expected.insert(expected.end(), row.begin(), row.end());
  }
  EXPECT_EQ(Read(table.get(), ids, Table::Mode::kRead), expected);
  EXPECT_EQ(table->Report(0).rows, 0);
  EXPECT_EQ(Read(table.get(), ids), expected);
  EXPECT_EQ(table->Report(0).rows, 4);
  EXPECT_EQ(Read(table.get(), ids, Table::Mode::kRead), expected);
}

// The model of a table, row by row: the optimizer over rows of a map.
class Model {
 public:
  explicit Model(const TableOptions& options)
      : options_(options),
        optimizer_(CreateRowOptimizer(options.optimizer, "optimizer").value()) {
  }

  std::vector<float>& row(uint64_t id) {
    std::vector<float>& row = rows_[id].floats;
    if (row.empty()) {
      row = Initial(options_, id);
      row.resize(static_cast<size_t>(optimizer_->row_floats(options_.dim)));
      optimizer_->FillInitialState(options_.dim, row.data());
    }
    return row;
  }
  void Update(const std::vector<uint64_t>& ids, const std::vector<float>& g,
              double rate) {
    for (size_t i = 0; i < ids.size(); ++i) {
      float* const at = row(ids[i]).data();
      const char* const from = reinterpret_cast<const char*>(
          &g[i * static_cast<size_t>(options_.dim)]);
      optimizer_->Apply({rate, step_},
                        {&at, &from, &rows_[ids[i]].updates, 1, options_.dim});
      ++rows_[ids[i]].updates;
    }
    ++step_;
  }
  void Expect(const RowRecords& records) {
    ASSERT_EQ(records.ids.size(), rows_.size());
    for (size_t i = 0; i < records.ids.size(); ++i) {
      const auto found = rows_.find(records.ids[i]);
      ASSERT_NE(found, rows_.end());
      const size_t floats = found->second.floats.size();
      EXPECT_TRUE(std::equal(found->second.floats.begin(),
                             found->second.floats.end(),
                             &records.floats[i * floats]));
      EXPECT_EQ(records.updates[i], found->second.updates);
    }
  }

 private:
  struct Row {
    std::vector<float> floats;
    uint32_t updates = 0;
  };
  const TableOptions options_;
  const std::unique_ptr<RowOptimizer> optimizer_;
  std::map<uint64_t, Row> rows_;
  uint64_t step_ = 0;
};

std::vector<const char*> AllOptimizers() {
  return {"sgd {}",
          "adagrad {}",
          "rowwise_adagrad {}",
          "adam {}",
          "adam { per_row_step: true }",
          "ftrl { l1: 0.01 }",
          "ftrl { l1: 0.01 l21: 0.02 }"};
}

TEST(TableTest, TrainsRowsAsAMapWould) {
  for (const char* optimizer : AllOptimizers()) {
    for (const int dim : {1, 16, 19}) {
      const TableOptions options = SmallOptions(optimizer, dim);
      const auto table = MakeTable(options);
      Model model(options);
      RandomStream random(9);
      for (int step = 0; step < 30; ++step) {
        std::vector<uint64_t> ids;
        std::vector<float> gradients;
        // Batches over a piece of 4096 and under; some ids twice.
        const uint32_t count = step % 10 == 0 ? 5000 : 300;
        for (uint32_t i = 0; i < count; ++i) {
          ids.push_back(uint64_t{random.NextBelow(6000)} << (i % 3 * 20));
          for (int k = 0; k < dim; ++k) {
            gradients.push_back(random.NextFloat(-1, 1));
          }
        }
        const std::vector<float> values = Read(table.get(), ids);
        for (size_t i = 0; i < ids.size(); ++i) {
          ASSERT_TRUE(std::equal(&values[i * static_cast<size_t>(dim)],
                                 &values[i * static_cast<size_t>(dim)] + dim,
                                 model.row(ids[i]).begin()));
        }
        const UpdateReceipt receipt = Push(table.get(), ids, gradients);
        EXPECT_EQ(receipt.applied, static_cast<int64_t>(ids.size()));
        model.Update(ids, gradients, 0.1);
      }
      model.Expect(ExportAll(table.get()));
    }
  }
}

// One training run over S shards; every row of all of them.
std::map<uint64_t, std::vector<float>> TrainOnShards(int shard_count,
                                                     int stripes, bool swap) {
  std::vector<std::unique_ptr<Table>> shards;
  for (int s = 0; s < shard_count; ++s) {
    TableOptions options = SmallOptions("adam {}");
    options.shard = s;
    options.shard_count = shard_count;
    options.stripes = stripes;
    shards.push_back(MakeTable(options));
  }
  RandomStream random(4);
  for (int step = 0; step < 20; ++step) {
    std::vector<uint64_t> ids;
    for (int i = 0; i < 500; ++i) {
      ids.push_back(random.NextBelow(2000));
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    if (swap) {
      std::reverse(ids.begin(), ids.end());
    }
    for (int s = 0; s < shard_count; ++s) {
      std::vector<uint64_t> own;
      std::vector<float> gradients;
      for (const uint64_t id : ids) {
        if (ShardOfId(id, shard_count) == s) {
          own.push_back(id);
          gradients.insert(gradients.end(), 4,
                           static_cast<float>(id % 7) - 3.0f);
        }
      }
      Push(shards[static_cast<size_t>(s)].get(), own, gradients);
    }
  }
  std::map<uint64_t, std::vector<float>> out;
  for (const auto& shard : shards) {
    const RowRecords all = ExportAll(shard.get());
    for (size_t i = 0; i < all.ids.size(); ++i) {
      out[all.ids[i]].assign(&all.floats[i * 12], &all.floats[i * 12] + 12);
    }
  }
  return out;
}

TEST(TableTest, HoldsTheSameRowsOnAnyShardAndStripeCountInAnyOrder) {
  const auto expected = TrainOnShards(1, 1, false);
  EXPECT_GT(expected.size(), 1900u);
  EXPECT_EQ(TrainOnShards(1, 64, true), expected);
  EXPECT_EQ(TrainOnShards(3, 8, false), expected);
  EXPECT_EQ(TrainOnShards(4, 1024, true), expected);
}

TEST(TableTest, RefusesAnIdOfAnotherShardWhole) {
  TableOptions options = SmallOptions();
  options.shard_count = 4;
  options.shard = 2;
  const auto table = MakeTable(options);
  float out[8];
  const uint64_t ids[] = {1, 0};  // of shards 2 and 0
  const absl::Status status = table->Lookup(ids, Table::Mode::kTrain, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "table \"user\": id 0 is of shard 0 of 4, not 2");
  const float gradients[8] = {};
  EXPECT_FALSE(
      table->Update(ids, reinterpret_cast<const char*>(gradients), 0.1).ok());
  EXPECT_FALSE(
      table->Import({{1, 0}, {0, 0}, {0, 0}, std::vector<float>(16)}).ok());
  EXPECT_EQ(table->Report(0).rows, 0);
  EXPECT_EQ(table->step(), 0u);
}

TEST(TableTest, LeavesRowsWithNanAlone) {
  const auto table = MakeTable(SmallOptions("sgd {}", 2));
  const std::vector<float> before = Read(table.get(), {1, 2, 3});
  const UpdateReceipt receipt =
      Push(table.get(), {1, 2, 3, 4}, {1, 1, 1, kNan, 2, 2, -INFINITY, 0}, 1);
  EXPECT_EQ(receipt.applied, 2);
  EXPECT_EQ(receipt.not_finite, 2);
  EXPECT_EQ(receipt.not_admitted, 0);
  EXPECT_EQ(Read(table.get(), {1, 2, 3}),
            (std::vector<float>{before[0] - 1, before[1] - 1, before[2],
                                before[3], before[4] - 2, before[5] - 2}));
  EXPECT_EQ(table->Report(0).rows, 3);  // id 4 was never touched
}

TEST(TableTest, CountsAStepWithoutIds) {
  const auto table = MakeTable(SmallOptions());
  PushAll(table.get(), {}, 0);
  PushAll(table.get(), {1}, 0);
  EXPECT_EQ(table->step(), 2u);
  table->SetStep(10);
  EXPECT_EQ(table->step(), 10u);
}

// Has a number of bytes.
class SmallArena : public Arena {
 public:
  explicit SmallArena(size_t bytes) : left_(bytes) {}
  void* Allocate(size_t bytes) override {
    if (bytes > left_) {
      throw std::bad_alloc();
    }
    left_ -= bytes;
    return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  }
  void Free(void* memory, size_t bytes) override {
    left_ += bytes;
    std::free(memory);
  }

 private:
  size_t left_;
};

TEST(TableTest, RowsThatFindNoMemoryAreNotAdmitted) {
  SmallArena arena(size_t{2} << 20);
  TableOptions options = SmallOptions("sgd {}", 1);
  options.arena = &arena;
  const std::unique_ptr<Table> table = MakeTable(options);
  std::vector<uint64_t> ids(300000);
  std::iota(ids.begin(), ids.end(), uint64_t{0});
  const std::vector<float> initial = Read(table.get(), ids);
  const TableFigures full = table->Report(0);
  EXPECT_GT(full.rows, 1000);
  EXPECT_EQ(full.counts.not_admitted,
            static_cast<int64_t>(ids.size()) - full.rows);
  // Those that are there go on.
  const UpdateReceipt receipt =
      Push(table.get(), ids, std::vector<float>(ids.size(), 1), 1);
  EXPECT_EQ(receipt.applied, full.rows);
  const std::vector<float> after = Read(table.get(), ids, Table::Mode::kRead);
  int64_t moved = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    moved += after[i] == initial[i] - 1.0f ? 1 : 0;
  }
  EXPECT_EQ(moved, full.rows);
}

TEST(TableTest, KeepsWithinAQuarterOfThePayload) {
  TableOptions options = SmallOptions("adagrad {}", 16);
  options.stripes = 64;
  const auto table = MakeTable(options);
  // Every size on the way, right after the segments split and right before;
  // from where what each stripe keeps ready no longer counts.
  for (uint64_t id = 0; id < 1'000'000; id += 1000) {
    Read(table.get(), Range(id, id + 1000));
    if (id >= 300'000 && id % 10'000 == 0) {
      const TableFigures report = table->Report(0);
      EXPECT_EQ(report.payload_bytes, report.rows * 128);
      EXPECT_LE(static_cast<double>(report.bytes),
                1.25 * static_cast<double>(report.payload_bytes))
          << report.rows;
    }
  }
}

std::string Error(const TableOptions& options) {
  return std::string(Table::Create(options).status().message());
}

TEST(TableOptionsTest, NamesTheBadField) {
  TableOptions o = SmallOptions();
  o.dim = 0;
  EXPECT_EQ(Error(o), "table \"user\": dim 0 is not in [1, 65536]");
  o = SmallOptions("adagrad { initial_accumulator: -1 }");
  EXPECT_EQ(Error(o),
            "table \"user\": optimizer.adagrad.initial_accumulator: -1 is not "
            ">= 0");
  o = SmallOptions();
  o.init.scale = -1;
  EXPECT_EQ(Error(o),
            "table \"user\": initializer: kind 2 with scale -1; the scale must "
            "be finite, and >= 0 unless it is a constant");
  o = SmallOptions();
  o.shard = 1;
  EXPECT_EQ(Error(o), "table \"user\": shard 1 is not in [0, 1)");
  o.shard_count = 0;
  EXPECT_EQ(Error(o), "table \"user\": shard_count 0 is not at least 1");
  o = SmallOptions();
  o.stripes = 12;
  EXPECT_EQ(Error(o),
            "table \"user\": stripes 12 is not a power of two in [1, 1024]");
  o = SmallOptions();
  o.admission = {.kind = AdmissionPolicy::Kind::kCount, .count = 256};
  EXPECT_EQ(Error(o), "table \"user\": admission count 256 is not in [1, 255]");
  o.admission = {AdmissionPolicy::Kind::kCount, 2, 1, 100};
  EXPECT_EQ(Error(o),
            "table \"user\": admission filter_bytes 100 is not in [512, "
            "1099511627776], a line for each stripe");
  o.admission = {AdmissionPolicy::Kind::kProbability, 1, 1.5};
  EXPECT_EQ(Error(o),
            "table \"user\": admission probability 1.5 is not in [0, 1]");
  o = SmallOptions();
  o.memory_bytes_max = 1;
  EXPECT_EQ(Error(o).substr(0, 48),
            "table \"user\": memory_bytes_max 1 is not at least");
}

}  // namespace
}  // namespace weir
