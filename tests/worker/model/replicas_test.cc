// Replicas on CPU backends, which have no device of their own but the same
// contract. The test on emulated GPUs is
// tests/worker/compute/cuda/replicas_on_cuda_test.cc.
#include "worker/model/replicas.h"

#include <algorithm>
#include <cmath>

#include "common/math/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/replicas_tester.h"
#include "worker/compute/cpu/cpu_backend.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// No layer mixes rows, and none draws random numbers.
constexpr char kPlain[] = R"(
  layer { name: "conv" conv2d { filters: 4 kernel_size: 3 padding: 1 } }
  layer { name: "act" relu {} }
  layer { name: "pool" max_pool { size: 2 } }
  layer { name: "flat" flatten {} }
  layer { name: "hidden" dense { units: 9 } }
  layer { name: "squash" tanh {} }
  layer { name: "norm" layer_norm {} }
  layer { name: "sum" input: "norm" input: "hidden" add {} }
  layer { name: "logits" dense { units: 3 } }
  loss { softmax_cross_entropy {} })";
const std::vector<int64_t> kImage = {2, 6, 6};

// Products fail on demand. TakeStatus gives an error once, as a backend does.
class Flaky : public CpuBackend {
 public:
  Flaky() : CpuBackend(DnnlOps::Create(1).value()) {}
  void Run(const Operation& operation) override {
    CpuBackend::Run(operation);
    broken_ |= fails && std::holds_alternative<op::MatMul>(operation);
  }
  absl::Status TakeStatus() override {
    return std::exchange(broken_, false)
               ? absl::InternalError("replica is on fire")
               : CpuBackend::TakeStatus();
  }
  DeviceUsage Usage() override { return usage; }

  bool fails = false;
  DeviceUsage usage;

 private:
  bool broken_ = false;
};

ReplicasTester::Backends Cpus(int count) {
  ReplicasTester::Backends backends;
  for (int r = 0; r < count; ++r) {
    backends.push_back(std::make_unique<Flaky>());
  }
  return backends;
}

std::unique_ptr<NetworkTester> One(const std::string& model,
                                   const std::vector<int64_t>& shape = kImage) {
  return NetworkTester::Create(model, shape).value();
}

std::unique_ptr<ReplicasTester> Many(
    int count, const std::string& model, NetworkTester* like,
    const std::vector<int64_t>& shape = kImage) {
  return ReplicasTester::Create(model, shape, Cpus(count), like).value();
}

// Sizes go up and down. With 1 and 2 rows some of 3 devices have no row.
TEST(ReplicasTest, ComputesTheWholeBatchsGradient) {
  for (const int count : {1, 2, 3}) {
    const auto one = One(kPlain);
    const auto many = Many(count, kPlain, one.get());
    for (const int64_t rows : {6, 7, 1, 8, 2, 3}) {
      SCOPED_TRACE(testing::Message() << count << " devices, " << rows);
      one->MakeBatch(rows, rows);
      const StepResult expected = one->Step().value();
      const StepResult actual = many->Step(one.get(), rows).value();
      EXPECT_NEAR(actual.loss, expected.loss, 1e-6);
      EXPECT_EQ(actual.correct, expected.correct);
      EXPECT_LT(GradientError(many.get(), one.get()), 1e-6);
    }
  }
}

TEST(ReplicasTest, ComparesWideLabelsRowByRow) {
  constexpr char kRegression[] = R"(
      layer { name: "out" dense { units: 5 } }
      loss { mean_squared_error {} })";
  const auto one = One(kRegression, {4});
  const auto many = Many(3, kRegression, one.get(), {4});
  one->MakeBatch(1, 7);
  const StepResult expected = one->Step().value();
  EXPECT_NEAR(many->Step(one.get(), 7)->loss, expected.loss, 1e-6);
  EXPECT_LT(GradientError(many.get(), one.get()), 1e-6);
}

// With dropout and batch norm too, since there is only one part.
TEST(ReplicasTest, HasTheNetworksBitsOnOneDevice) {
  constexpr char kAll[] = R"(
      layer { name: "flat" flatten {} }
      layer { name: "hidden" dense { units: 9 } }
      layer { name: "norm" batch_norm {} }
      layer { name: "drop" dropout { rate: 0.4 } }
      layer { name: "logits" dense { units: 3 } }
      loss { softmax_cross_entropy {} })";
  const auto one = One(kAll);
  const auto same = Many(1, kAll, one.get());
  one->MakeBatch(1, 6);
  EXPECT_EQ(one->Step(5)->loss, same->Step(one.get(), 6, 5)->loss);
  EXPECT_EQ(GradientError(same.get(), one.get()), 0.0);
}

TEST(ReplicasTest, GivesTheSameBitsTwice) {
  const auto one = One(kPlain);
  one->MakeBatch(1, 8);
  std::vector<std::vector<float>> runs;
  for (int run = 0; run < 2; ++run) {
    const auto many = Many(3, kPlain, one.get());
    ASSERT_TRUE(many->Step(one.get(), 8).ok());
    runs.emplace_back(many->gradient(0), many->gradient(0) + 72);
  }
  EXPECT_EQ(runs[0], runs[1]);
}

TEST(ReplicasTest, CallsHooksOncePerVariableInOrder) {
  const auto one = One(kPlain);
  const auto many = Many(3, kPlain, one.get());
  one->MakeBatch(1, 7);
  ASSERT_TRUE(one->Step().ok());
  // Values come one by one. A gradient is complete when the hook is called.
  const auto& variables = many->variables();
  std::vector<std::vector<float>> values;
  for (size_t v = 0; v < variables.size(); ++v) {
    float* const begin = many->parameter(static_cast<int>(v));
    values.emplace_back(begin, begin + variables[v].elements());
    std::fill_n(begin, variables[v].elements(), std::nanf(""));
  }
  std::vector<int> before;
  std::vector<int> ready;
  StepHooks hooks;
  hooks.before_layer_parameters = [&](int v) {
    before.push_back(v);
    std::copy(values[v].begin(), values[v].end(), many->parameter(v));
    return absl::OkStatus();
  };
  hooks.gradient_ready = [&](int v) {
    ready.push_back(v);
    EXPECT_LT(RelativeError(many->gradient(v), one->gradient(variables[v].name),
                            variables[v].elements()),
              1e-6);
    // From here on the client may write the next values.
    std::fill_n(many->parameter(v), variables[v].elements(), std::nanf(""));
    return absl::OkStatus();
  };
  ASSERT_TRUE(many->Step(one.get(), 7, 1, hooks).ok());
  EXPECT_THAT(before, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(ready, ElementsAre(7, 6, 5, 4, 3, 2, 1, 0));
}

TEST(ReplicasTest, EndsTheStepWithAHooksError) {
  const auto one = One(kPlain);
  const auto many = Many(2, kPlain, one.get());
  one->MakeBatch(1, 4);
  ASSERT_TRUE(one->Step().ok());
  const auto stop = [](int v) {
    return v == 4 ? absl::CancelledError("stop") : absl::OkStatus();
  };
  for (const StepHooks& hooks :
       {StepHooks{.before_layer_parameters = stop, .gradient_ready = {}},
        StepHooks{.before_layer_parameters = {}, .gradient_ready = stop}}) {
    EXPECT_EQ(many->Step(one.get(), 4, 1, hooks).status(),
              absl::CancelledError("stop"));
  }
  ASSERT_TRUE(many->Step(one.get(), 4).ok());
  EXPECT_LT(GradientError(many.get(), one.get()), 1e-6);
}

TEST(ReplicasTest, HandsOutNothingOfAFailedReplica) {
  for (const size_t failed : {0, 1, 2}) {
    const auto one = One(kPlain);
    const auto many = Many(3, kPlain, one.get());
    one->MakeBatch(1, 6);
    auto& backend = static_cast<Flaky&>(many->backend(failed));
    backend.fails = true;
    int handed_out = 0;
    StepHooks hooks;
    hooks.gradient_ready = [&](int) {
      ++handed_out;
      return absl::OkStatus();
    };
    EXPECT_EQ(many->Step(one.get(), 6, 1, hooks).status(),
              absl::InternalError("replica is on fire"));
    EXPECT_EQ(handed_out, 0);
    backend.fails = false;
    EXPECT_TRUE(many->Step(one.get(), 6).ok());
  }
}

TEST(ReplicasTest, NamesTheRowOfAWrongLabelInTheWholeBatch) {
  const auto one = One(kPlain);
  const auto many = Many(3, kPlain, one.get());
  one->MakeBatch(1, 6);
  one->labels()[5] = 3.0f;
  const absl::Status status = many->Step(one.get(), 6).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("row 5: label 3"));
  EXPECT_EQ(many->Step(one.get(), 0).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// The closed form for parts {1, 2, 3} and {6, 10}, with weights 3/5 and 2/5.
TEST(ReplicasTest, TakesBatchStatisticsOfEachPart) {
  constexpr char kNorm[] = R"(
      layer { name: "n" batch_norm { epsilon: 0.0001 } }
      loss { mean_squared_error {} })";
  const auto one = One(kNorm, {1});
  const auto many = Many(2, kNorm, one.get(), {1});
  many->parameter(0)[0] = 1.0f;
  many->parameter(1)[0] = 0.0f;
  one->MakeBatch(1, 5);
  one->features() = {1, 2, 3, 6, 10};
  one->labels() = {0, 0, 0, 0, 0};
  const StepResult result = many->Step(one.get(), 5).value();
  // Each part's mean is 0 then, and its square's mean 1.
  EXPECT_NEAR(result.loss, 1.0, 1e-3);
  ASSERT_EQ(many->variables()[2].name, "n/moving_mean");
  EXPECT_FLOAT_EQ(many->gradient(2)[0], 0.6f * 2.0f + 0.4f * 8.0f);
  // Unbiased: 1 and 8. What lies between the parts' means is not in it.
  EXPECT_FLOAT_EQ(many->gradient(3)[0], 0.6f * 1.0f + 0.4f * 8.0f);
}

// Rows of one value: what dropout leaves shows in the gradient of a bias.
TEST(ReplicasTest, DrawsDropoutForEveryPartAnew) {
  constexpr char kDrop[] = R"(
      layer { name: "first" dense { units: 32 no_bias: true } }
      layer { name: "drop" dropout { rate: 0.5 } }
      layer { name: "out" dense { units: 1 no_bias: true } }
      loss { mean_squared_error {} })";
  const auto one = One(kDrop, {1});
  // The kernel's gradient of one replica alone: rows of zeros give none.
  const auto masks = [&](const std::vector<float>& features) {
    const auto many = Many(2, kDrop, one.get(), {1});
    one->MakeBatch(1, 2);
    one->features() = features;
    one->labels() = {5.0f, 5.0f};
    EXPECT_TRUE(many->Step(one.get(), 2, 77).ok());
    std::vector<bool> kept;
    for (int i = 0; i < 32; ++i) {
      kept.push_back(many->gradient(0)[i] != 0.0f);
    }
    return kept;
  };
  const auto alone = [&](uint64_t seed) {
    one->MakeBatch(1, 1);
    one->features() = {1.0f};
    one->labels() = {5.0f};
    EXPECT_TRUE(one->Step(seed).ok());
    std::vector<bool> kept;
    for (int i = 0; i < 32; ++i) {
      kept.push_back(one->gradient("first/kernel")[i] != 0.0f);
    }
    return kept;
  };
  EXPECT_EQ(masks({1, 0}), alone(77));
  EXPECT_EQ(masks({0, 1}), alone(MixKey(77, 1)));
  EXPECT_NE(alone(77), alone(MixKey(77, 1)));
}

TEST(ReplicasTest, CountsWhatAllDevicesDo) {
  const auto one = One(kPlain);
  const auto many = Many(2, kPlain, one.get());
  static_cast<Flaky&>(many->backend(0)).usage = {10, 100, 1000};
  static_cast<Flaky&>(many->backend(1)).usage = {30, 200, 4000};
  const DeviceUsage usage = many->replicas().Usage();
  EXPECT_EQ(usage.busy_ns, 20);
  EXPECT_EQ(usage.bytes_used, 300);
  EXPECT_EQ(usage.bytes_reserved, 5000);
}

TEST(ReplicasTest, ReadTablesOnOneDeviceOnly) {
  const NetworkOptions options = {.sparse = MakeSparseSpec({"t:1"}, {"A"})};
  const Model model = ParseModel(
      "layer { name: 'e' embedding_bag { table: 't' } } "
      "layer { name: 'f' flatten {} } loss { sigmoid_cross_entropy {} }");
  const auto backends = Cpus(2);
  const absl::Status two =
      Replicas::Create(model, {}, {backends[0].get(), backends[1].get()},
                       options)
          .status();
  EXPECT_EQ(two.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(two.message()),
              HasSubstr("tables with several devices in one worker"));
  const auto one =
      Replicas::Create(model, {}, {backends[0].get()}, options).value();
  TableBatch batch;
  ASSERT_TRUE(batch
                  .Fill(one->network().tables()[0].uses,
                        {.features = {{{0, 1}, {7}, {}}}}, 1)
                  .ok());
  const float row = 0.0f;
  const float label = 1.0f;
  float gradient = 0.0f;
  const std::vector<TableInput> inputs = {{&batch, &row, &gradient}};
  ASSERT_TRUE(one->TrainStep(nullptr, &label, 1, 1, {}, inputs).ok());
  EXPECT_FLOAT_EQ(gradient, -0.5f);  // sigmoid(0) - 1
}

}  // namespace
}  // namespace weir
