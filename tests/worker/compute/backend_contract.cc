#include "tests/worker/compute/backend_contract.h"

#include <cctype>
#include <cstdlib>
#include <random>

namespace weir {
namespace {

uint64_t Seed() {
  static const uint64_t seed = [] {
    // Tests start no thread that changes the environment.
    const char* text = std::getenv("WEIR_CHECK_SEED");  // NOLINT
    return text != nullptr ? std::strtoull(text, nullptr, 10)
                           : std::random_device()();
  }();
  return seed;
}

}  // namespace

std::string BackendContract::Name(
    const testing::TestParamInfo<ParamType>& info) {
  std::string name;
  bool gap = false;
  for (const char c :
       std::get<0>(info.param).name + " " + std::get<1>(info.param).name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) {
      gap = true;
      continue;
    }
    name.append(gap ? 1 : 0, '_').push_back(c);
    gap = false;
  }
  return name;
}

TEST_P(BackendContract, Holds) {
  const auto& [maker, check] = GetParam();
  const std::unique_ptr<Backend> backend = maker.make();
  if (backend == nullptr) {
    GTEST_SKIP() << "no device for " << maker.name;
  }
  const std::vector<CheckResult> results = RunCheck(
      check, backend.get(), {.precision = maker.precision, .seed = Seed()});
  EXPECT_FALSE(results.empty());
  for (const CheckResult& result : results) {
    EXPECT_TRUE(result.ok) << result.operation << ", " << result.shape << ", "
                           << result.detail << "; error " << result.error
                           << ", bound " << result.bound
                           << "; repeat with WEIR_CHECK_SEED=" << Seed();
  }
}

}  // namespace weir
