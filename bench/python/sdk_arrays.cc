// Does by the C++ SDK what bench/python/python_bench.py measures with NumPy:
// pull, push and both of 64 MiB with one ps. Reads the cluster from TF_CONFIG.
//
//   sdk_arrays STEPS
//
// Prints GB/s, medians: {"pull": ..., "push": ..., "push_pull": ...}.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "client/cc/weir.h"

namespace {

using weir::sdk::Client;
using weir::sdk::Options;
using weir::sdk::Status;

constexpr int64_t kElements = int64_t{16} << 20;

void Check(const Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "sdk_arrays: %s\n", status.message().c_str());
    std::exit(1);  // NOLINT: no other thread of this program
  }
}

// GB/s of the median call, after a quarter that is not counted.
template <typename Call>
double Rate(int steps, const Call& call) {
  std::vector<double> seconds;
  for (int i = 0; i < steps + steps / 4; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    Check(call());
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - begin;
    if (i >= steps / 4) {
      seconds.push_back(took.count());
    }
  }
  std::sort(seconds.begin(), seconds.end());
  return sizeof(float) * static_cast<double>(kElements) * 1e-9 /
         seconds[seconds.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::max(std::atoi(argv[1]), 4) : 20;
  Options options;
  Check(options.FromEnv());
  options.groups[0].learning_rate = 1.0;
  auto client = Client::Connect(options);
  Check(client.status());
  Check(client->Declare({{.name = "w", .shape = {kElements}}}));
  const auto gradient = client->Gradient("w");
  std::fill(gradient.begin(), gradient.end(), 1e-6f);
  const double pull = Rate(steps, [&] { return client->Pull(); });
  const double push = Rate(steps, [&] { return client->Push(); });
  const double both = Rate(steps, [&] { return client->PushPull(); });
  std::printf("{\"pull\": %.4f, \"push\": %.4f, \"push_pull\": %.4f}\n", pull,
              push, both);
  return 0;
}
