// Lock-free updates race on purpose; TSan must be silent about them, and the
// loss must be single additions, nothing else. See common/math/simd.h.
#include <cmath>
#include <thread>
#include <vector>

#include "common/math/half.h"
#include "common/math/simd.h"
#include "tests/server/ps/optimizer/optimizer_suite.h"

namespace weir {
namespace {

TEST(HogwildTest, LosesWholeAdditionsAtMost) {
  // With a tail: TSan sees no access wider than 16 bytes.
  constexpr size_t kCount = 4099;
  constexpr int kThreads = 4;
  constexpr int kSteps = 200;
  const auto optimizer = MakeOptimizer("sgd {}");
  std::vector<float> values(kCount, 0.0f);
  const std::vector<float> gradient(kCount, -1.0f);
  std::vector<char> seen(kCount * 2);
  std::vector<std::thread> threads;
  for (int k = 0; k < kThreads; ++k) {
    threads.emplace_back([&] {
      for (uint64_t t = 0; t < kSteps; ++t) {
        optimizer->Apply({t, 1.0, {}}, values.data(), nullptr,
                         reinterpret_cast<const char*>(gradient.data()),
                         kCount);
      }
    });
  }
  for (int i = 0; i < kSteps; ++i) {  // a reader that never waits
    FloatsToBf16(values.data(), kCount, seen.data());
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const float value : values) {
    // Each element has its additions, less the lost ones, and no other value.
    EXPECT_EQ(value, std::floor(value));
    EXPECT_GE(value, 1.0f);
    EXPECT_LE(value, static_cast<float>(kThreads * kSteps));
  }
}

TEST(HogwildTest, KeepsStateFiniteUnderRaces) {
  SetSimdLevelForTest(SimdLevel::kBaseline);  // 16 bytes: TSan would see it
  for (const std::string spec :
       {"sgd { momentum: 0.9 }", "adagrad {}",
        "rmsprop { centered: true momentum: 0.5 epsilon: 0.1 }", "adadelta {}",
        "adam { amsgrad: true }", "adamw {}", "ftrl {}",
        "ftrl { learning_rate_power: -0.6 }", "moving_average 0.1"}) {
    const auto optimizer = MakeOptimizer(spec);
    OptimizerState state = MakeState(*optimizer, GoldenStart());
    std::vector<std::thread> threads;
    for (int k = 0; k < 2; ++k) {
      threads.emplace_back([&] {
        for (int t = 0; t < kGoldenSteps; ++t) {
          Step(*optimizer, {static_cast<uint64_t>(t), 0.001, {}},
               GoldenGradient(t), &state);
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (const float value : state.values) {
      EXPECT_TRUE(std::isfinite(value)) << spec;
    }
  }
  SetSimdLevelForTest(BestSimdLevel());
}

}  // namespace
}  // namespace weir
