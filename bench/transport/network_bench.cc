// A training step of two small models, one thread: forward, loss, backward.
//
// bazel run -c opt //bench/transport:network_bench
// The same step in PyTorch: bench/training/torch_step.py.
#include <vector>

#include "benchmark/benchmark.h"
#include "common/base/check.h"
#include "common/math/random.h"
#include "google/protobuf/text_format.h"
#include "worker/compute/factory.h"
#include "worker/model/network.h"

namespace weir {
namespace {

constexpr int64_t kRows = 64;

constexpr char kMlp[] = R"(
  layer { name: "a" dense { units: 512 } } layer { name: "ra" relu {} }
  layer { name: "b" dense { units: 256 } } layer { name: "rb" relu {} }
  layer { name: "c" dense { units: 10 } }
  loss { softmax_cross_entropy {} })";

constexpr char kConvNet[] = R"(
  layer { name: "a" conv2d { filters: 32 kernel_size: 3 padding: 1 } }
  layer { name: "ra" relu {} } layer { name: "pa" max_pool { size: 2 } }
  layer { name: "b" conv2d { filters: 64 kernel_size: 3 padding: 1 } }
  layer { name: "rb" relu {} } layer { name: "pb" max_pool { size: 2 } }
  layer { name: "f" flatten {} }
  layer { name: "c" dense { units: 128 } } layer { name: "rc" relu {} }
  layer { name: "d" dense { units: 10 } }
  loss { softmax_cross_entropy {} })";

void RunStep(benchmark::State& state, const char* text,
             std::vector<int64_t> shape) {
  Model model;
  WEIR_CHECK(google::protobuf::TextFormat::ParseFromString(text, &model));
  auto backend = CreateBackend({}).value();
  auto network = Network::Create(model, std::move(shape), backend.get(),
                                 {.rows_reserved = kRows})
                     .value();
  const Layout layout =
      Layout::Create(network->variables(), 1, Layout::kDefaultBlockElements)
          .value();
  RandomStream random(1);
  std::vector<float> parameters(layout.flat_elements());
  std::vector<float> gradients(layout.flat_elements());
  for (float& value : parameters) {
    value = random.NextFloat(-0.05f, 0.05f);
  }
  std::vector<float> features(kRows * network->feature_elements());
  for (float& value : features) {
    value = random.NextFloat();
  }
  std::vector<float> labels(kRows);
  for (float& label : labels) {
    label = static_cast<float>(random.NextBelow(10));
  }
  WEIR_CHECK(network->Bind(layout, parameters.data(), gradients.data()).ok());
  uint64_t seed = 0;
  for (auto _ : state) {
    const auto result =
        network->TrainStep(features.data(), labels.data(), kRows, ++seed, {});
    WEIR_CHECK(result.ok());
    benchmark::DoNotOptimize(result->loss);
  }
}

void BM_Network_MlpStep(benchmark::State& state) {
  RunStep(state, kMlp, {784});
}
BENCHMARK(BM_Network_MlpStep)->Unit(benchmark::kMicrosecond);

void BM_Network_ConvNetStep(benchmark::State& state) {
  RunStep(state, kConvNet, {1, 28, 28});
}
BENCHMARK(BM_Network_ConvNetStep)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace weir

BENCHMARK_MAIN();
