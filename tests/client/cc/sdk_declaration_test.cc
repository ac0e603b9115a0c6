#include "client/cc/sdk_declaration.h"

#include <gtest/gtest.h>

#include "proto/declaration_io.h"

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
  options.worker_index = 1;
  EXPECT_EQ(CheckOptions(options).message(),
            "worker_index 1 is not below worker_count 1");
  options = Good();
  options.groups.clear();
  EXPECT_EQ(CheckOptions(options).message(), "Options.groups has no optimizer");
  options = Good();
  options.lost_after_seconds = 0.0;
  EXPECT_FALSE(CheckOptions(options).ok());
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
