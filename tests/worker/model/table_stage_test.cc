#include "worker/model/table_stage.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// This model reads table "t" twice, and "u" in between.
constexpr char kModel[] = R"(
  layer { name: "a" embedding_bag { table: "t" } }
  layer { name: "fa" flatten {} }
  layer { name: "b" embedding_bag { table: "u" feature: "B" pooling: MAX } }
  layer { name: "fb" flatten {} }
  layer { name: "c" embedding_bag { table: "t" feature: "B" pooling: MEAN } }
  layer { name: "fc" flatten {} }
  layer { name: "all" input: "fa" input: "fb" input: "fc" concat {} }
  layer { name: "y" dense { units: 1 } }
  loss { sigmoid_cross_entropy {} })";

std::unique_ptr<NetworkTester> Tester() {
  auto tester =
      NetworkTester::Create(kModel, {}, nullptr,
                            MakeSparseSpec({"t:2", "u:3"}, {"A", "B"}))
          .value();
  tester->MakeBatch(1, 6);
  return tester;
}

TEST(TableStageTest, EveryTablesGradientIsFinalWhenItIsSaidToBe) {
  const auto tester = Tester();
  std::vector<int> ready;
  std::vector<std::vector<float>> seen(2);
  StepHooks hooks;
  hooks.table_gradient_ready = [&](int t) {
    ready.push_back(t);
    seen[t] = tester->tables()[t].gradients;
    return absl::OkStatus();
  };
  ASSERT_TRUE(tester->Step(1, hooks).ok());
  EXPECT_THAT(ready, ElementsAre(1, 0));
  for (int t = 0; t < 2; ++t) {
    EXPECT_EQ(seen[t], tester->tables()[t].gradients);
    EXPECT_FALSE(seen[t].empty());
    for (const float g : seen[t]) {
      EXPECT_TRUE(std::isfinite(g));  // nothing of the poison is added to
    }
  }
  const absl::Status stop = absl::AbortedError("stop");
  hooks.table_gradient_ready = [&](int) { return stop; };
  EXPECT_EQ(tester->Step(1, hooks).status(), stop);
}

TEST(TableStageTest, ARepeatedStepGivesTheSameBits) {
  const auto tester = Tester();
  ASSERT_TRUE(tester->Step().ok());
  const std::vector<float> first = tester->tables()[0].gradients;
  tester->MakeBatch(2, 40);
  ASSERT_TRUE(tester->Step().ok());
  tester->MakeBatch(1, 6);
  ASSERT_TRUE(tester->Step().ok());
  EXPECT_EQ(tester->tables()[0].gradients, first);
}

TEST(TableStageTest, ABatchWithoutIdsTrainsTheRest) {
  const auto tester = Tester();
  tester->SetBags({.features = std::vector<SparseFeature>(
                       2, {{0, 0, 0, 0, 0, 0, 0}, {}, {}})},
                  6);
  EXPECT_THAT(tester->tables()[0].rows, IsEmpty());
  ASSERT_TRUE(tester->Step().ok());
  for (int64_t i = 0; i < tester->elements("y/kernel"); ++i) {
    EXPECT_EQ(tester->gradient("y/kernel")[i], 0.0f);
  }
  EXPECT_NE(tester->gradient("y/bias")[0], 0.0f);
}

TEST(TableStageTest, NamesTheTableWhoseInputDoesNotFit) {
  const auto tester = Tester();
  const auto error = [&](const std::vector<TableInput>& inputs, bool training) {
    const float* labels = tester->labels().data();
    const absl::Status status =
        training
            ? tester->network()
                  .TrainStep(nullptr, labels, 6, 1, {}, inputs)
                  .status()
            : tester->network().Evaluate(nullptr, labels, 6, inputs).status();
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return status.ok() ? "OK" : std::string(status.message());
  };
  std::vector<TableInput> inputs = tester->table_inputs();
  EXPECT_EQ(error(inputs, true), "OK");
  EXPECT_EQ(error({}, true),
            "the batch has the rows of 0 tables; the model reads 2");
  inputs[1].gradients = nullptr;
  EXPECT_EQ(error(inputs, false), "OK");
  EXPECT_THAT(error(inputs, true), HasSubstr("table 'u': there is no memory"));
  inputs = tester->table_inputs();
  inputs[0].rows = nullptr;
  EXPECT_THAT(error(inputs, false), HasSubstr("table 't': there is no memory"));
  inputs = tester->table_inputs();
  inputs[1].batch = nullptr;
  EXPECT_THAT(error(inputs, false), HasSubstr("table 'u': its ids are not"));
  inputs[1].batch = inputs[0].batch;
  EXPECT_THAT(error(inputs, false),
              HasSubstr("table 'u': its ids are not those of 6 samples and 1 "
                        "layers"));
  const auto shorter = Tester();
  shorter->MakeBatch(1, 5);
  EXPECT_THAT(error(shorter->table_inputs(), false),
              HasSubstr("table 't': its ids are not those of 6 samples"));
}

}  // namespace
}  // namespace weir
