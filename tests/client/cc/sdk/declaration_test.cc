#include "client/cc/sdk/declaration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "proto/wire/declaration_io.h"

namespace weir::sdk {
namespace {

Options Good() {
  Options options;
  options.ps = {"127.0.0.1:1"};
  return options;
}

Declaration Declare(const std::vector<Tensor>& tensors) {
  const auto variables = ToVariables(Good(), tensors);
  EXPECT_TRUE(variables.ok()) << variables.status();
  return ToDeclaration(Good(), *variables);
}

TEST(SdkDeclarationTest, EveryOptimizerKeepsItsSettings) {
  Options options = Good();
  Optimizer& group = options.groups[0];
  group.weight_decay = 0.5;
  group.momentum = 0.25;
  group.beta1 = 0.75;
  group.epsilon = 2.0;
  const auto optimizer = [&](Optimizer::Kind kind) {
    group.kind = kind;
    return ToDeclaration(options, {}).group(0).optimizer();
  };
  EXPECT_EQ(optimizer(Optimizer::Kind::kSgd).sgd().momentum(), 0.25);
  EXPECT_EQ(optimizer(Optimizer::Kind::kAdagrad).adagrad().epsilon(), 2.0);
  EXPECT_EQ(optimizer(Optimizer::Kind::kRmsProp).rmsprop().alpha(), 0.99);
  EXPECT_EQ(optimizer(Optimizer::Kind::kAdadelta).adadelta().rho(), 0.9);
  EXPECT_EQ(optimizer(Optimizer::Kind::kAdam).adam().beta1(), 0.75);
  EXPECT_EQ(optimizer(Optimizer::Kind::kAdamW).adamw().weight_decay(), 0.5);
  group.epsilon.reset();
  EXPECT_FALSE(optimizer(Optimizer::Kind::kAdam).adam().has_epsilon());
}

TEST(SdkDeclarationTest, OptionsAreCheckedByName) {
  Options options = Good();
  EXPECT_TRUE(CheckOptions(options).ok());
  options.rank = 1;
  EXPECT_EQ(CheckOptions(options).message(),
            "rank 1 is not below worker_count 1");
  options = Good();
  options.groups.clear();
  EXPECT_EQ(CheckOptions(options).message(), "Options.groups has no optimizer");
  options = Good();
  options.lost_after_seconds = 0.0;
  EXPECT_EQ(CheckOptions(options).message(),
            "Options.lost_after_seconds is 0; choose 0.001 to 86400");
  options = Good();
  options.start_wait_seconds = std::numeric_limits<double>::infinity();
  EXPECT_EQ(CheckOptions(options).message(),
            "Options.start_wait_seconds is inf; choose 0.001 to 86400");
}

TEST(SdkDeclarationTest, TensorsAreCheckedByName) {
  EXPECT_EQ(ToVariables(Good(), {{.name = "w", .shape = {2}, .values = {1.0f}}})
                .status()
                .message(),
            "tensor 'w' has 2 elements and 1 values");
  EXPECT_EQ(ToVariables(Good(), {{.name = "w", .shape = {2}, .group = 1}})
                .status()
                .message(),
            "tensor 'w' is of group 1; there are 1");
}

TEST(SdkDeclarationTest, TheFirstDifferenceIsNamed) {
  const Declaration ours = Declare({{.name = "a", .shape = {5, 4}}, {"b"}});
  EXPECT_EQ(FirstTensorDifference(ours, ours), "");
  EXPECT_EQ(
      FirstTensorDifference(Declare({{.name = "a", .shape = {5, 10}}}), ours),
      "'a' is [5, 10] on the server, [5, 4] here");
  EXPECT_EQ(FirstTensorDifference(Declare({{"x"}}), ours),
            "tensor 0 is 'x' on the server, 'a' here");
  EXPECT_EQ(
      FirstTensorDifference(Declare({{.name = "a", .shape = {5, 4}}}), ours),
      "1 tensors on the server, 2 here");
  Declaration blocks = ours;
  blocks.set_block_elements(16);
  EXPECT_EQ(FirstDeclarationDifference(blocks, ours),
            "the size of a block is 16 on the server, 262144 here");
  EXPECT_EQ(FirstTensorDifference(blocks, ours), "");
  Declaration mode = ours;
  mode.mutable_update()->mutable_sync();
  EXPECT_EQ(FirstDeclarationDifference(mode, ours),
            "the mode is sync on the server, async here");
  Declaration optimizer = ours;
  optimizer.mutable_group(0)->mutable_optimizer()->mutable_adam();
  EXPECT_EQ(FirstTensorDifference(optimizer, ours),
            "the optimizer is adam on the server, sgd here");
}

Declaration WithTables(const std::vector<Table>& tables) {
  Declaration declaration = Declare({{"w"}});
  const absl::Status status = AddTables(tables, &declaration);
  EXPECT_TRUE(status.ok()) << status;
  return declaration;
}

TEST(SdkDeclarationTest, RowOptimizersKeepTheirSettings) {
  RowOptimizer rule;
  rule.learning_rate = 0.5;
  rule.epsilon = 0.25;
  rule.initial_accumulator = 2.0;
  rule.beta1 = 0.75;
  rule.l1 = 3.0;
  const auto table = [&](RowOptimizer::Kind kind) {
    rule.kind = kind;
    return WithTables({{.name = "t", .dim = 4, .optimizer = rule}}).table(0);
  };
  using Kind = RowOptimizer::Kind;
  EXPECT_EQ(table(Kind::kSgd).schedule().learning_rate(), 0.5);
  EXPECT_TRUE(table(Kind::kSgd).optimizer().has_sgd());
  EXPECT_EQ(table(Kind::kAdagrad).optimizer().adagrad().epsilon(), 0.25);
  EXPECT_EQ(table(Kind::kRowwiseAdagrad)
                .optimizer()
                .rowwise_adagrad()
                .initial_accumulator(),
            2.0);
  EXPECT_EQ(table(Kind::kAdam).optimizer().adam().beta1(), 0.75);
  EXPECT_EQ(table(Kind::kFtrl).optimizer().ftrl().l1(), 3.0);
  rule.initial_accumulator.reset();
  EXPECT_FALSE(table(Kind::kFtrl).optimizer().ftrl().has_initial_accumulator());
}

TEST(SdkDeclarationTest, TablesAreCheckedByName) {
  const auto error = [](const Table& table) {
    Declaration declaration;
    return std::string(AddTables({table}, &declaration).message());
  };
  EXPECT_EQ(error({.name = "User", .dim = 4}),
            "table 'User': name: 'User' is not 1 to 64 of a-z, 0-9 and _");
  EXPECT_NE(error({.name = std::string(65, 'a'), .dim = 4}), "");
  EXPECT_EQ(error({.name = "user"}), "table 'user': dim: 0 is not at least 1");
  EXPECT_EQ(error({.name = "user", .dim = 65537}),
            "table 'user': dim: 65537 is not in [1, 65536]");
  EXPECT_EQ(
      error({.name = "user", .dim = 4, .optimizer = {.learning_rate = 0.0}}),
      "table 'user': schedule.learning_rate: 0 is not > 0");
  EXPECT_EQ(error({.name = "user", .dim = 4, .update_encoding = "top_k"}),
            "table 'user': update: rows travel in a fixed size; choose one of "
            "F32, BF16, F16, INT8");
  EXPECT_EQ(error({.name = "user",
                   .dim = 4,
                   .optimizer = {.learning_rate = std::nan("")}}),
            "table 'user': schedule.learning_rate: nan is not finite");
  Declaration declaration;
  EXPECT_EQ(AddTables({{.name = "t", .dim = 1}, {.name = "t", .dim = 1}},
                      &declaration)
                .message(),
            "table 't' is declared twice");
}

TEST(SdkDeclarationTest, TheFirstDifferenceOfTablesIsNamed) {
  const Table good = {.name = "user", .dim = 8};
  const Declaration ours = WithTables({good});
  const auto difference = [&](const Table& table) {
    return FirstDeclarationDifference(WithTables({table}), ours);
  };
  EXPECT_EQ(difference(good), "");
  Table other = good;
  other.optimizer.learning_rate = 3.0;
  other.lookup_encoding = "bf16";
  EXPECT_EQ(difference(other), "");
  EXPECT_EQ(FirstTensorDifference(WithTables({}), ours),
            "0 tables on the server, 1 here");
  other = good;
  other.name = "movie";
  EXPECT_EQ(difference(other), "table 0 is 'movie' on the server, 'user' here");
  other = good;
  other.dim = 16;
  EXPECT_EQ(difference(other),
            "rows of table 'user' have 16 floats on the server, 8 here");
  other = good;
  other.optimizer.kind = RowOptimizer::Kind::kAdam;
  EXPECT_EQ(difference(other),
            "the optimizer of table 'user' is adam on the server, sgd here");
  other = good;
  other.init = Table::Init::kNormal;
  EXPECT_NE(difference(other).find("'user' has other initial values"),
            std::string::npos)
      << difference(other);
  other = good;
  other.admission_count = 3;
  EXPECT_NE(difference(other).find("'user' has other settings"),
            std::string::npos)
      << difference(other);
  Declaration seed = ours;
  seed.set_seed(7);
  EXPECT_EQ(FirstDeclarationDifference(seed, ours),
            "the seed of rows is 7 on the server, 0 here");
}

TEST(SdkDeclarationTest, SettingsCarryWhatIsSetAlone) {
  const std::vector<Hyper> hyper =
      ToHyper({{.group = 1, .learning_rate = 0.5, .momentum = 0.25}});
  ASSERT_EQ(hyper.size(), 1u);
  EXPECT_EQ(hyper[0].group(), 1u);
  EXPECT_EQ(hyper[0].learning_rate(), 0.5);
  EXPECT_FALSE(hyper[0].has_weight_decay());
  EXPECT_EQ(hyper[0].momentum(), 0.25);
}

}  // namespace
}  // namespace weir::sdk
