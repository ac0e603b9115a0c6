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
  EXPECT_TRUE(options.optimizer.has_sgd());
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

TEST(TablePlanTest, AFieldThatIsNotSetTakesItsDefault) {
  const TableOptimizer adam =
      OptionsOf("optimizer { adam { beta1: 0.5 } }").optimizer;
  EXPECT_EQ(adam.adam().beta1(), 0.5);
  EXPECT_EQ(adam.adam().beta2(), 0.999);
  EXPECT_FALSE(adam.adam().per_row_step());
  const TableOptimizer adagrad =
      OptionsOf("optimizer { rowwise_adagrad { initial_accumulator: 2 } }")
          .optimizer;
  EXPECT_EQ(adagrad.rowwise_adagrad().initial_accumulator(), 2);
  EXPECT_EQ(adagrad.rowwise_adagrad().epsilon(), 1e-10);
  const TableOptimizer ftrl =
      OptionsOf("optimizer { ftrl { l1: 3 } }").optimizer;
  EXPECT_EQ(ftrl.ftrl().l1(), 3);
  EXPECT_EQ(ftrl.ftrl().learning_rate_power(), -0.5);
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
                                "admission.count: 256"));
  EXPECT_TRUE(absl::StrContains(ErrorOf("optimizer { adam { beta1: 1 } }"),
                                "optimizer.adam.beta1"));
  // More than an int64 holds.
  EXPECT_TRUE(
      absl::StrContains(ErrorOf("expiry { memory_bytes: 9223372036854775808 }"),
                        "table \"t\": expiry.memory_bytes"));
  // Filters whose sizes no sum of sizes can hold.
  for (const char* bytes : {"1099511627777", "2305843009213693952",
                            "9223372036854775807", "18446744073709551615"}) {
    EXPECT_TRUE(absl::StrContains(
        ErrorOf(absl::StrCat("admission { count: 2 filter_bytes: ", bytes,
                             " } expiry { memory_bytes: 1000000000 }")),
        "admission filter_bytes"));
  }
  // Less than one row in every stripe.
  EXPECT_TRUE(absl::StrContains(ErrorOf("expiry { memory_bytes: 1 }"),
                                "memory_bytes_max 1 is not at least"));
  Declaration wide = Job("");
  wide.mutable_table(0)->set_dim(TableOptions::kMaxDim);
  EXPECT_TRUE(OptionsOfTable(wide, 0, 0).ok());
  wide.mutable_table(0)->set_dim(TableOptions::kMaxDim + 1);
  EXPECT_FALSE(OptionsOfTable(wide, 0, 0).ok());
  wide.mutable_table(0)->set_dim(UINT32_MAX);  // -1 as an int
  EXPECT_TRUE(absl::StrContains(OptionsOfTable(wide, 0, 0).status().message(),
                                "dim: 4294967295"));
}

TEST(TablePlanTest, TablesAreFewAndHaveNames) {
  Declaration job = Job("");
  EXPECT_TRUE(CheckTables(job, 0).ok());
  job.mutable_table(0)->clear_name();
  EXPECT_TRUE(
      absl::StrContains(CheckTables(job, 0).message(), "name: '' is not"));
  while (job.table_size() <= kTablesMax) {
    job.add_table();
  }
  EXPECT_TRUE(absl::StrContains(CheckTables(job, 0).message(), "at most 1024"));
}

}  // namespace
}  // namespace weir
