#include "server/ps/plan/table_plan.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

// One table 't'; `fields` follow the ones that every table needs.
Declaration Job(const std::string& fields) {
  return ParseDeclaration(
      absl::StrCat("shard_count: 3 seed: 9 table { name: 't' dim: 4 "
                   "schedule { learning_rate: 1 } initializer { zeros {} } ",
                   fields, " }"));
}

TableOptions OptionsOf(const std::string& fields) {
  const absl::StatusOr<TableOptions> options =
      OptionsOfTable(Job(fields), 0, 2);
  EXPECT_TRUE(options.ok()) << options.status();
  return options.ok() ? *options : TableOptions();
}

std::string ErrorOf(const std::string& fields) {
  return std::string(OptionsOfTable(Job(fields), 0, 2).status().message());
}

TEST(TablePlanTest, TakesOverNameSizeAndPlace) {
  const TableOptions options = OptionsOf("");
  EXPECT_EQ(options.name, "t");
  EXPECT_EQ(options.dim, 4);
  EXPECT_EQ(options.shard, 2);
  EXPECT_EQ(options.shard_count, 3);
  EXPECT_TRUE(std::holds_alternative<RowSgd>(options.optimizer));
  EXPECT_EQ(options.age_max, 0u);
  EXPECT_EQ(options.memory_bytes_max, 0);
  EXPECT_EQ(options.admission.kind, AdmissionPolicy::Kind::kAlways);
  EXPECT_EQ(options.eviction, EvictionOrder::kLeastRecent);
}

TEST(TablePlanTest, TablesOfOneJobBeginWithDifferentValues) {
  Declaration job = Job("");
  *job.add_table() = job.table(0);
  job.mutable_table(1)->set_name("u");
  EXPECT_NE(OptionsOfTable(job, 0, 0)->seed, OptionsOfTable(job, 1, 0)->seed);
  // The seed is the same on every shard, wherever a row lives.
  EXPECT_EQ(OptionsOfTable(job, 0, 0)->seed, OptionsOfTable(job, 0, 1)->seed);
}

TEST(TablePlanTest, AFieldThatIsNotSetKeepsTheOptimizersDefault) {
  const auto adam = std::get<RowAdam>(
      OptionsOf("optimizer { adam { beta1: 0.5 } }").optimizer);
  EXPECT_EQ(adam.beta1, 0.5);
  EXPECT_EQ(adam.beta2, RowAdam().beta2);
  EXPECT_FALSE(adam.per_row_step);
  const auto adagrad = std::get<RowwiseAdagrad>(
      OptionsOf("optimizer { rowwise_adagrad { initial_accumulator: 2 } }")
          .optimizer);
  EXPECT_EQ(adagrad.initial_accumulator, 2);
  EXPECT_EQ(adagrad.epsilon, RowwiseAdagrad().epsilon);
  const auto ftrl =
      std::get<RowFtrl>(OptionsOf("optimizer { ftrl { l1: 3 } }").optimizer);
  EXPECT_EQ(ftrl.l1, 3);
  EXPECT_EQ(ftrl.learning_rate_power, RowFtrl().learning_rate_power);
}

TEST(TablePlanTest, GroupLassoMakesAnotherOptimizer) {
  const auto spec =
      OptionsOf("optimizer { ftrl { l1: 3 l21: 0.5 } }").optimizer;
  ASSERT_TRUE(std::holds_alternative<RowGroupFtrl>(spec));
  EXPECT_EQ(std::get<RowGroupFtrl>(spec).l21, 0.5);
  EXPECT_EQ(std::get<RowGroupFtrl>(spec).ftrl.l1, 3);
}

TEST(TablePlanTest, TakesOverWhichRowsAreKept) {
  const TableOptions steps =
      OptionsOf("expiry { steps: 7 least_frequent: true }");
  EXPECT_EQ(steps.age_max, 7u);
  EXPECT_EQ(steps.eviction, EvictionOrder::kLeastFrequent);
  EXPECT_EQ(OptionsOf("expiry { seconds: 8 }").age_max, 8u);
  const TableOptions counted = OptionsOf("admission { count: 3 }");
  EXPECT_EQ(counted.admission.kind, AdmissionPolicy::Kind::kCount);
  EXPECT_EQ(counted.admission.count, 3u);
  EXPECT_EQ(counted.admission.filter_bytes, AdmissionPolicy().filter_bytes);
  const TableOptions drawn = OptionsOf("admission { probability: 0.25 }");
  EXPECT_EQ(drawn.admission.kind, AdmissionPolicy::Kind::kProbability);
  EXPECT_EQ(drawn.admission.probability, 0.25);
}

TEST(TablePlanTest, NamesTheFieldThatIsWrong) {
  EXPECT_TRUE(absl::StrContains(ErrorOf("lookup: TOP_K"), "F32, BF16"));
  EXPECT_TRUE(absl::StrContains(ErrorOf("update: TOP_K"), "F32, BF16"));
  EXPECT_TRUE(absl::StrContains(ErrorOf("admission { count: 256 }"),
                                "admission count 256"));
  EXPECT_TRUE(absl::StrContains(ErrorOf("optimizer { adam { beta1: 1 } }"),
                                "optimizer.adam.beta1"));
  // More than an int64 holds.
  EXPECT_TRUE(
      absl::StrContains(ErrorOf("expiry { memory_bytes: 9223372036854775808 }"),
                        "memory_bytes_max"));
  Declaration wide = Job("");
  wide.mutable_table(0)->set_dim(UINT32_MAX);  // -1 as an int
  EXPECT_TRUE(absl::StrContains(OptionsOfTable(wide, 0, 0).status().message(),
                                "dim 4294967295"));
}

TEST(TablePlanTest, TablesAreFewAndHaveNamesOfTheirOwn) {
  Declaration job = Job("");
  EXPECT_TRUE(CheckTables(job, 0).ok());
  *job.add_table() = job.table(0);
  EXPECT_TRUE(
      absl::StrContains(CheckTables(job, 0).message(), "as another one is"));
  job.mutable_table(1)->clear_name();
  EXPECT_TRUE(
      absl::StrContains(CheckTables(job, 0).message(), "give it a name"));
  while (job.table_size() <= kTablesMax) {
    job.add_table();
  }
  EXPECT_TRUE(absl::StrContains(CheckTables(job, 0).message(), "at most 1024"));
}

}  // namespace
}  // namespace weir
