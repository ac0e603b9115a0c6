// Linear regression on parameter servers, without Weir's own worker.
//
//   ./weir build //examples:sdk_linear
//   export WEIR_SECRET=$(./weir secret)
//   bin/weir_ps --cluster "ps=127.0.0.1:2222" --task_index 0 &
//   bin/sdk_linear 127.0.0.1:2222
//
// Learns y = 3 x0 - 2 x1 + 0.5 from noise-free samples and prints what it
// found. Every line that talks to Weir is marked.
#include <cmath>
#include <cstdio>
#include <random>

#include "client/cc/weir.h"

namespace {

int Fail(const weir::sdk::Status& status) {
  std::fprintf(stderr, "sdk_linear: %s\n", status.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  weir::sdk::Options options;
  options.ps.assign(argv + 1, argv + argc);
  options.groups[0].learning_rate = 0.1;
  if (argc < 2) {
    const weir::sdk::Status status = options.FromEnv();  // Weir
    if (!status.ok()) {
      return Fail(status);
    }
  }
  auto client = weir::sdk::Client::Connect(options);  // Weir
  if (!client.ok()) {
    return Fail(client.status());
  }
  weir::sdk::Status status = client->Declare(  // Weir
      {{.name = "weight", .shape = {2}}, {.name = "bias", .shape = {1}}});
  if (status.ok()) {
    status = client->Pull();  // Weir
  }
  const auto weight = client->Values("weight");  // Weir
  const auto bias = client->Values("bias");
  const auto weight_gradient = client->Gradient("weight");
  const auto bias_gradient = client->Gradient("bias");

  constexpr int kBatch = 32;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int step = 0; status.ok() && step < 300; ++step) {
    weight_gradient[0] = weight_gradient[1] = bias_gradient[0] = 0.0f;
    for (int i = 0; i < kBatch; ++i) {
      const float x0 = normal(random);
      const float x1 = normal(random);
      const float y = 3.0f * x0 - 2.0f * x1 + 0.5f;
      const float error = weight[0] * x0 + weight[1] * x1 + bias[0] - y;
      weight_gradient[0] += 2.0f * error * x0 / kBatch;
      weight_gradient[1] += 2.0f * error * x1 / kBatch;
      bias_gradient[0] += 2.0f * error / kBatch;
    }
    status = client->PushPull();  // Weir
  }
  if (!status.ok()) {
    return Fail(status);
  }
  std::printf("y = %.3f x0 + %.3f x1 + %.3f\n", weight[0], weight[1], bias[0]);
  const bool learned = std::fabs(weight[0] - 3.0f) < 0.01f &&
                       std::fabs(weight[1] + 2.0f) < 0.01f &&
                       std::fabs(bias[0] - 0.5f) < 0.01f;
  return learned ? 0 : 1;
}
