#include "server/ps/plan/shard_plan.h"

#include <cmath>
#include <functional>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

constexpr int64_t kMemory = int64_t{1} << 30;

Declaration Job() {
  return ParseDeclaration(
      "variable { name: 'a' shape: 100 } variable { name: 'b' shape: 5 }"
      "group { optimizer { adam {} } schedule { learning_rate: 1 } }"
      "update { sync { contributions: 2 } }");
}

struct Case {
  std::function<void(Declaration&)> spoil;
  std::string words;
};

void ExpectNamed(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    Declaration declaration = Job();
    c.spoil(declaration);
    const auto plan = ShardPlan::Create(declaration, 0, kMemory);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument)
        << c.words;
    EXPECT_TRUE(absl::StrContains(plan.status().message(), c.words))
        << plan.status();
  }
}

TEST(ShardPlanTest, NamesTheFieldThatIsWrong) {
  const std::vector<Case> cases = {
      {[](Declaration& d) { d.clear_job(); }, "job"},
      {[](Declaration& d) { d.set_history(0); }, "history"},
      {[](Declaration& d) { d.set_shard_count(0); }, "shard 0"},
      {[](Declaration& d) { d.set_shard_count(5000); }, "shard_count 5000"},
      {[](Declaration& d) { d.set_block_elements(0); }, "block_elements"},
      {[](Declaration& d) { d.set_block_elements(17); }, "block_elements 17"},
      {[](Declaration& d) { d.set_block_elements(UINT64_MAX); },
       "block_elements"},
      {[](Declaration& d) { d.clear_variable(); }, "neither a variable"},
      {[](Declaration& d) { d.mutable_variable(0)->set_name("b"); }, "'b'"},
      {[](Declaration& d) { d.mutable_variable(1)->set_shape(0, -5); }, "'b'"},
      {[](Declaration& d) { d.mutable_variable(1)->set_group(1); },
       "'b' is in group 1 of 1"},
      {[](Declaration& d) {
         d.mutable_variable(1)->set_init(static_cast<Variable::Init>(9));
       },
       "variable[1].init: 9 is unknown"},
      {[](Declaration& d) {
         d.mutable_variable(1)->set_init_scale(std::nanf(""));
       },
       "variable[1].init_scale: nan is not finite"},
      {[](Declaration& d) { d.mutable_variable(1)->set_buffer_rate(1.5f); },
       "'b' has buffer_rate 1.5"},
      {[](Declaration& d) { d.clear_group(); }, "group"},
      {[](Declaration& d) { d.mutable_group(0)->clear_optimizer(); },
       "group[0].optimizer"},
      {[](Declaration& d) {
         d.mutable_group(0)->mutable_schedule()->set_learning_rate(-1);
       },
       "group[0].schedule"},
      {[](Declaration& d) { d.clear_update(); }, "update"},
      {[](Declaration& d) {
         d.mutable_update()->mutable_sync()->set_contributions(0);
       },
       "contributions"},
      {[](Declaration& d) {
         d.mutable_update()->mutable_sync()->set_contributions(1 << 20);
       },
       "contributions"},
      {[](Declaration& d) { d.set_slot_count(0); }, "slot_count"},
      {[](Declaration& d) {
         d.set_out_of_order_bytes(ShardPlan::kOutOfOrderBytesMax + 1);
       },
       "out_of_order_bytes: 402653185 is not in [0, 402653184]"},
      {[](Declaration& d) { d.set_slot_count(1 << 20); }, "slot_count"},
      {[](Declaration& d) { d.set_base_version(UINT64_MAX); }, "base_version"},
  };
  ExpectNamed(cases);
  EXPECT_TRUE(ShardPlan::Create(Job(), 0, kMemory).ok());
  EXPECT_FALSE(ShardPlan::Create(Job(), 1, kMemory).ok());
}

TEST(ShardPlanTest, NamesWhatSeveralFieldsHaveWrong) {
  ExpectNamed({
      {[](Declaration& d) {
         d.mutable_variable(1)->set_init(Variable::NORMAL);
         d.mutable_variable(1)->set_init_scale(-1);
       },
       "\"b\""},
      {[](Declaration& d) {
         for (int i = 0; i < 2; ++i) {
           d.add_table()->set_name("t");
           d.mutable_table(i)->set_dim(4);
         }
       },
       "table[1].name: 't' is that of table[0] already"},
  });
}

TEST(ShardPlanTest, RefusesWhatDoesNotFitBeforeItAllocates) {
  Declaration declaration = Job();
  declaration.set_block_elements(1 << 16);  // the plan itself would be huge
  declaration.mutable_variable(0)->set_shape(0, int64_t{1} << 39);
  const auto plan = ShardPlan::Create(declaration, 0, kMemory);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(plan.status().message(), "MiB"))
      << plan.status();
}

// 105 elements in lines of 16: 112 and 16. Adam has two arrays of state.
TEST(ShardPlanTest, SaysWhatAShardTakes) {
  const auto memory = ShardPlan::MemoryOf(Job(), 0);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->values, 4 * 128);
  EXPECT_EQ(memory->state, 2 * memory->values);
  EXPECT_EQ(memory->sums, memory->values);
  EXPECT_EQ(memory->saved, memory->values + memory->state);
  EXPECT_GT(memory->blocks, 0);
  EXPECT_EQ(memory->tables, 0);
  const auto bytes = static_cast<int64_t>(memory->total());
  EXPECT_TRUE(ShardPlan::Create(Job(), 0, bytes).ok());
  EXPECT_EQ(ShardPlan::Create(Job(), 0, bytes - 1).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ShardPlan::MemoryOf(Job(), 5).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Fine-tuning: most of the model is frozen.
TEST(ShardPlanTest, CountsTheStateOfBlocksThatHaveAny) {
  const Declaration declaration = ParseDeclaration(
      "variable { name: 'body' shape: 640 }"
      "variable { name: 'head' shape: 64 group: 1 }"
      "group { frozen: true optimizer { adam {} } "
      "        schedule { learning_rate: 1 } }"
      "group { optimizer { adam {} } schedule { learning_rate: 1 } }"
      "update { async {} }");
  const auto memory = ShardPlan::MemoryOf(declaration, 0);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->state, 2 * 4 * 64);
  EXPECT_EQ(memory->saved, 3 * memory->values);
  StoreTester ps(declaration);
  EXPECT_EQ(static_cast<double>(ps.store->GetStatus().bytes_resident()),
            memory->values + memory->state);
  const auto bytes = static_cast<int64_t>(memory->total());
  EXPECT_TRUE(ShardPlan::Create(declaration, 0, bytes).ok());
  EXPECT_EQ(ShardPlan::Create(declaration, 0, bytes - 1).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(ShardPlanTest, GivesSlotsOnlyToBlocksThatUseThem) {
  const Declaration declaration = ParseDeclaration(
      "variable { name: 'a' shape: 64 } variable { name: 'b' shape: 64 }"
      "variable { name: 'c' shape: 64 group: 1 }"
      "variable { name: 'd' shape: 64 kind: BUFFER }"
      "group { optimizer { sgd {} } schedule { learning_rate: 1 } }"
      "group { optimizer { sgd { momentum: 0.9 } }"
      "        schedule { learning_rate: 1 } }"
      "update { async {} }");
  const auto plan = *ShardPlan::Create(declaration, 0, kMemory);
  EXPECT_EQ(plan->state_names(), std::vector<std::string>{"momentum"});
  EXPECT_FALSE(plan->blocks()[0].uses_state[0]);
  EXPECT_TRUE(plan->blocks()[2].uses_state[0]);
  EXPECT_FALSE(plan->blocks()[3].uses_state[0]);
  EXPECT_EQ(plan->blocks()[3].segments[0].optimizer, nullptr);  // rate 0
}

TEST(ShardPlanTest, CountsWhatTablesTakeBeforeTheirRows) {
  Declaration declaration = Job();
  EmbeddingTable table;
  table.set_name("t");
  table.set_dim(4);
  table.mutable_schedule()->set_learning_rate(1);
  *declaration.add_table() = table;
  const auto code = [&](int64_t memory) {
    return ShardPlan::Create(declaration, 0, memory).status().code();
  };
  const auto exhausted = absl::StatusCode::kResourceExhausted;
  EXPECT_EQ(code(int64_t{4} << 20), absl::StatusCode::kOk);
  EXPECT_EQ(code(int64_t{1} << 20), exhausted);
  Admission& admission = *declaration.mutable_table(0)->mutable_admission();
  admission.set_count(2);
  admission.set_filter_bytes(uint64_t{1} << 33);
  EXPECT_EQ(code(int64_t{1} << 33), exhausted);
  EXPECT_EQ(code(int64_t{1} << 34), absl::StatusCode::kOk);
  // An admission by chance has no filter.
  admission.set_probability(0.5);
  EXPECT_EQ(code(int64_t{4} << 20), absl::StatusCode::kOk);
  declaration.clear_table();
  for (int i = 0; i < 1024; ++i) {
    table.set_name("t" + std::to_string(i));
    *declaration.add_table() = table;
  }
  EXPECT_EQ(code(int64_t{1} << 30), exhausted);
}

}  // namespace
}  // namespace weir
