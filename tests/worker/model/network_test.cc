#include "worker/model/network.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"
#include "worker/compute/factory.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kMlp[] = R"(
  layer { name: "hidden" dense { units: 5 } }
  layer { name: "act" relu {} }
  layer { name: "logits" dense { units: 3 } }
  loss { softmax_cross_entropy {} })";

constexpr char kConvNet[] = R"(
  layer { name: "conv" conv2d { filters: 4 kernel_size: 3 padding: 1 } }
  layer { name: "norm" batch_norm {} }
  layer { name: "act" relu {} }
  layer { name: "pool" max_pool { size: 2 } }
  layer { name: "drop" dropout { rate: 0.3 } }
  layer { name: "flat" flatten {} }
  layer { name: "logits" dense { units: 3 } }
  loss { softmax_cross_entropy {} })";

TEST(NetworkTest, GradientsOfAnMlpAreTheLossesDifferences) {
  EXPECT_EQ(CheckModelGradients(kMlp, {7}, 6), "");
}

TEST(NetworkTest, GradientsOfAConvNetAreTheLossesDifferences) {
  EXPECT_EQ(CheckModelGradients(kConvNet, {2, 6, 6}, 5), "");
}

TEST(NetworkTest, AddsTheGradientsOfEveryConsumer) {
  // "a" feeds four inputs: twice one add, a concat, and the second dense.
  EXPECT_EQ(CheckModelGradients(R"(
      layer { name: "a" dense { units: 4 } }
      layer { name: "r" input: "a" relu {} }
      layer { name: "t" input: "a" tanh {} }
      layer { name: "sum" input: "a" input: "a" input: "t" add {} }
      layer { name: "f" input: "a" flatten {} }
      layer { name: "s" input: "f" sigmoid {} }
      layer { name: "all" input: "sum" input: "r" input: "a" input: "s"
              input: "features" concat {} }
      layer { name: "out" dense { units: 2 } }
      loss { mean_squared_error {} })",
                                {3}, 5),
            "");
}

TEST(NetworkTest, TrainsAnInnerLayerThatTheLossReadsToo) {
  EXPECT_EQ(CheckModelGradients(R"(
      layer { name: "a" dense { units: 2 } }
      layer { name: "t" input: "a" tanh {} }
      layer { name: "b" dense { units: 2 } }
      layer { name: "out" input: "a" input: "b" add {} }
      loss { softmax_cross_entropy {} })",
                                {3}, 5),
            "");
}

TEST(NetworkTest, DeclaresVariablesInForwardOrder) {
  auto tester = NetworkTester::Create(kConvNet, {2, 6, 6}).value();
  std::vector<std::string> names;
  for (const VariableSpec& variable : tester->network().variables()) {
    names.push_back(variable.name);
    EXPECT_EQ(variable.group, 0);
  }
  EXPECT_THAT(names, ElementsAre("conv/kernel", "conv/bias", "norm/scale",
                                 "norm/offset", "norm/moving_mean",
                                 "norm/moving_variance", "logits/kernel",
                                 "logits/bias"));
  EXPECT_THAT(tester->network().variables()[0].shape, ElementsAre(4, 2, 3, 3));
  EXPECT_THAT(tester->network().variables()[6].shape, ElementsAre(36, 3));
}

TEST(NetworkTest, CallsHooksOncePerVariableInOrder) {
  auto tester = NetworkTester::Create(kConvNet, {2, 6, 6}).value();
  tester->MakeBatch(1, 4);
  std::vector<int> before;
  std::vector<int> ready;
  const StepHooks hooks = {.before_layer_parameters =
                               [&](int v) {
                                 EXPECT_TRUE(ready.empty());
                                 before.push_back(v);
                                 return absl::OkStatus();
                               },
                           .gradient_ready =
                               [&](int v) {
                                 ready.push_back(v);
                                 return absl::OkStatus();
                               }};
  ASSERT_TRUE(tester->network()
                  .TrainStep(tester->features().data(), tester->labels().data(),
                             4, 1, hooks)
                  .ok());
  EXPECT_THAT(before, ElementsAre(0, 1, 2, 3, 6, 7));
  EXPECT_THAT(ready, ElementsAre(7, 6, 5, 4, 3, 2, 1, 0));
}

TEST(NetworkTest, AGradientIsFinalWhenItIsSaidToBe) {
  auto tester = NetworkTester::Create(kConvNet, {2, 6, 6}).value();
  tester->MakeBatch(1, 4);
  std::vector<std::vector<float>> seen(8);
  const auto values = [&](int v) {
    const VariableSpec& variable = tester->network().variables()[v];
    const float* begin = tester->gradient(variable.name);
    return std::vector<float>(begin, begin + variable.elements());
  };
  const StepHooks hooks = {.before_layer_parameters = nullptr,
                           .gradient_ready = [&](int v) {
                             seen[v] = values(v);
                             return absl::OkStatus();
                           }};
  ASSERT_TRUE(tester->network()
                  .TrainStep(tester->features().data(), tester->labels().data(),
                             4, 1, hooks)
                  .ok());
  for (int v = 0; v < 8; ++v) {
    EXPECT_EQ(seen[v], values(v)) << v;
    for (const float g : seen[v]) {
      EXPECT_TRUE(std::isfinite(g));
    }
  }
}

// The client writes the next step's values over a variable as soon as the last
// gradient of its block is ready (client/cc/parameters/parameter_client.h, I3).
TEST(NetworkTest, ReadsNoParameterWhoseGradientIsReady) {
  constexpr char kText[] = R"(
layer { name: "conv" conv2d { filters: 3 kernel_size: 3 padding: 1 } }
layer { name: "bn" batch_norm {} } layer { name: "r" relu {} }
layer { name: "flat" flatten {} }
layer { name: "a" dense { units: 12 } } layer { name: "ln" layer_norm {} }
layer { name: "b" input: "ln" dense { units: 12 } }
layer { name: "sum" input: "ln" input: "b" add {} }
layer { name: "logits" dense { units: 4 } }
loss { softmax_cross_entropy {} })";
  const auto calm = NetworkTester::Create(kText, {1, 6, 6}).value();
  const auto hasty = NetworkTester::Create(kText, {1, 6, 6}).value();
  calm->MakeBatch(3, 5);
  hasty->MakeBatch(3, 5);
  ASSERT_TRUE(calm->Step().ok());
  const Layout& layout = hasty->layout();
  const StepHooks hooks = {
      .before_layer_parameters = {}, .gradient_ready = [&](int v) {
        std::fill_n(hasty->parameters() + layout.flat_begin(v),
                    layout.variables()[v].elements(), std::nanf(""));
        return absl::OkStatus();
      }};
  ASSERT_TRUE(hasty->network()
                  .TrainStep(hasty->features().data(), hasty->labels().data(),
                             5, 1, hooks)
                  .ok());
  for (size_t v = 0; v < layout.variables().size(); ++v) {
    const int64_t begin = layout.flat_begin(static_cast<int>(v));
    for (int64_t i = 0; i < layout.variables()[v].elements(); ++i) {
      ASSERT_EQ(hasty->gradients()[begin + i], calm->gradients()[begin + i])
          << layout.variables()[v].name << "[" << i << "]";
    }
  }
}

TEST(NetworkTest, AHookEndsTheStepWithItsError) {
  auto tester = NetworkTester::Create(kMlp, {7}).value();
  tester->MakeBatch(1, 4);
  const StepHooks hooks = {
      .before_layer_parameters = nullptr,
      .gradient_ready = [&](int) { return absl::CancelledError("stop"); }};
  EXPECT_EQ(tester->network()
                .TrainStep(tester->features().data(), tester->labels().data(),
                           4, 1, hooks)
                .status(),
            absl::CancelledError("stop"));
  EXPECT_TRUE(tester->Step().ok());
}

// The same step on buffers that are off their alignment by 4 bytes, after steps
// of other sizes: the bits must not change.
TEST(NetworkTest, AStepIsAFunctionOfItsInputsBitForBit) {
  for (const auto& [model, shape] :
       {std::pair<std::string, std::vector<int64_t>>{kMlp, {7}},
        {kConvNet, {2, 6, 6}}}) {
    auto first = NetworkTester::Create(model, shape).value();
    first->MakeBatch(5, 9);
    const StepResult expected = first->Step(3).value();
    auto second = NetworkTester::Create(model, shape).value();
    second->MakeBatch(6, 13);
    ASSERT_TRUE(second->Step(8).ok());
    second->MakeBatch(5, 9);
    const int64_t flat = second->layout().flat_elements();
    std::vector<float> parameters(flat + 1);
    std::vector<float> gradients(flat + 3);
    std::vector<float> features(second->features().size() + 1);
    std::copy_n(second->parameters(), flat, parameters.data() + 1);
    std::copy(second->features().begin(), second->features().end(),
              features.data() + 1);
    ASSERT_TRUE(
        second->network()
            .Bind(second->layout(), parameters.data() + 1, gradients.data() + 3)
            .ok());
    const StepResult actual =
        second->network()
            .TrainStep(features.data() + 1, second->labels().data(), 9, 3, {})
            .value();
    EXPECT_EQ(actual.loss, expected.loss);
    for (const VariableSpec& variable : first->network().variables()) {
      const int v = first->layout().Find(variable.name);
      EXPECT_EQ(
          std::memcmp(gradients.data() + 3 + first->layout().flat_begin(v),
                      first->gradient(variable.name),
                      variable.elements() * sizeof(float)),
          0)
          << variable.name;
    }
  }
}

TEST(NetworkTest, DropoutFollowsTheContributionsSeed) {
  auto tester = NetworkTester::Create(kConvNet, {2, 6, 6}).value();
  tester->MakeBatch(1, 4);
  const double one = tester->Step(1).value().loss;
  EXPECT_NE(tester->Step(2).value().loss, one);
  EXPECT_EQ(tester->Step(1).value().loss, one);
}

TEST(NetworkTest, NeverTouchesThePaddingBetweenVariables) {
  auto tester = NetworkTester::Create(kMlp, {7}).value();
  tester->MakeBatch(1, 4);
  ASSERT_TRUE(tester->Step().ok());
  std::vector<bool> used(tester->layout().flat_elements(), false);
  for (const VariableSpec& variable : tester->network().variables()) {
    const int64_t begin =
        tester->layout().flat_begin(tester->layout().Find(variable.name));
    std::fill_n(used.begin() + begin, variable.elements(), true);
  }
  for (size_t i = 0; i < used.size(); ++i) {
    EXPECT_EQ(std::isnan(tester->gradients()[i]), !used[i]) << i;
  }
}

TEST(NetworkTest, PutsTheBatchStatisticsIntoTheBuffersPlaces) {
  // Closed form: the features' own mean and unbiased variance.
  auto tester = NetworkTester::Create(R"(
      layer { name: "n" batch_norm { momentum: 0.25 } }
      loss { mean_squared_error {} })",
                                      {2})
                    .value();
  tester->MakeBatch(1, 4);
  tester->features() = {1, 10, 2, 10, 3, 10, 6, 10};
  ASSERT_TRUE(tester->Step().ok());
  EXPECT_FLOAT_EQ(tester->gradient("n/moving_mean")[0], 3.0f);
  EXPECT_FLOAT_EQ(tester->gradient("n/moving_mean")[1], 10.0f);
  EXPECT_FLOAT_EQ(tester->gradient("n/moving_variance")[0], 14.0f / 3.0f);
  EXPECT_FLOAT_EQ(tester->gradient("n/moving_variance")[1], 0.0f);
  const VariableSpec& mean = tester->network().variables()[2];
  EXPECT_EQ(mean.kind, VariableKind::kBuffer);
  EXPECT_EQ(mean.buffer_rate, 0.25f);
}

TEST(NetworkTest, EvaluatesWithMovingStatisticsAndWithoutDropout) {
  auto tester = NetworkTester::Create(R"(
      layer { name: "n" batch_norm { epsilon: 0.0001 } }
      layer { name: "d" dropout { rate: 0.5 } }
      loss { mean_squared_error {} })",
                                      {1})
                    .value();
  tester->parameter("n/scale")[0] = 3.0f;
  tester->parameter("n/offset")[0] = 1.0f;
  tester->parameter("n/moving_mean")[0] = 2.0f;
  tester->parameter("n/moving_variance")[0] = 4.0f - 0.0001f;
  const std::vector<float> features = {2, 4, 0};
  const std::vector<float> labels = {1, 3, 0};
  const EvaluateResult result =
      tester->network().Evaluate(features.data(), labels.data(), 3).value();
  EXPECT_THAT(result.outputs, ElementsAre(1.0f, 4.0f, -2.0f));
  EXPECT_FLOAT_EQ(result.loss_sum, 0.0 + 1.0 + 4.0);
  const EvaluateResult bare =
      tester->network().Evaluate(features.data(), nullptr, 2).value();
  EXPECT_THAT(bare.outputs, ElementsAre(1.0f, 4.0f));
}

TEST(NetworkTest, RefusesLabelsThatAreNoClass) {
  auto tester = NetworkTester::Create(kMlp, {7}).value();
  tester->MakeBatch(1, 4);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {-1.0f, 3.0f, 0.5f, nan, 1e30f}) {
    tester->labels()[2] = bad;
    const absl::Status status = tester->Step().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("row 2: label ", bad)));
    EXPECT_THAT(std::string(status.message()), HasSubstr("3 classes"));
  }
}

TEST(NetworkTest, SaysWhatIsMissingToRun) {
  auto backend = CreateBackend({}).value();
  auto network =
      Network::Create(ParseModel(kMlp), {7}, backend.get(), {}).value();
  const std::vector<float> x(14);
  const std::vector<float> y(2);
  EXPECT_EQ(network->Evaluate(x.data(), y.data(), 2).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const Layout layout = Layout::Create(network->variables(), 1, 1024).value();
  std::vector<float> parameters(layout.flat_elements());
  ASSERT_TRUE(network->Bind(layout, parameters.data(), nullptr).ok());
  EXPECT_TRUE(network->Evaluate(x.data(), y.data(), 2).ok());
  EXPECT_EQ(network->TrainStep(x.data(), y.data(), 2, 0, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(network->Evaluate(x.data(), y.data(), 0).status().code(),
            absl::StatusCode::kInvalidArgument);
  const Layout other =
      Layout::Create({network->variables()[0]}, 1, 1024).value();
  EXPECT_THAT(
      std::string(network->Bind(other, parameters.data(), nullptr).message()),
      HasSubstr("'hidden/bias' of the model is not in the layout"));
}

}  // namespace
}  // namespace weir
