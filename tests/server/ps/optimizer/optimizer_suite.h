// The contract suite of optimizers, run over every golden case of a member.
//
// A member's test says:
//   INSTANTIATE_TEST_SUITE_P(Sgd, OptimizerSuite, GoldenCases("sgd_"),
//   CaseName);
#ifndef TESTS_SERVER_PS_OPTIMIZER_OPTIMIZER_SUITE_H_
#define TESTS_SERVER_PS_OPTIMIZER_OPTIMIZER_SUITE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "server/ps/optimizer/optimizer.h"

namespace weir {

inline constexpr char kGoldens[] = "tests/server/ps/optimizer/goldens/";
inline constexpr int kGoldenElements = 320;
inline constexpr int kGoldenSteps = 50;

struct GoldenCase {
  std::string name;
  double learning_rate = 0;
  std::string spec;  // text of an Optimizer, or "moving_average <rate>"
  int index = -1;    // in the reference files; -1: no reference
  // Rate and momentum of each golden step; empty: the learning rate, and the
  // optimizer's own momentum.
  std::vector<std::pair<double, double>> cycle = {};

  // The context that the optimizer is given at `step`.
  StepContext At(int step) const;
};

std::ostream& operator<<(std::ostream& out, const GoldenCase& golden);

// The cases of goldens/cases.txt whose name begins with `prefix`.
auto GoldenCases(const std::string& prefix)
    -> decltype(testing::ValuesIn(std::vector<GoldenCase>()));
inline std::string CaseName(const testing::TestParamInfo<GoldenCase>& info) {
  return info.param.name;
}

// The optimizer that `spec` (as in GoldenCase) asks for, or the error's
// message.
std::unique_ptr<Optimizer> MakeOptimizer(const std::string& spec);
std::string OptimizerError(const std::string& spec);

// Values and state of one segment.
struct OptimizerState {
  std::vector<float> values;
  std::vector<std::vector<float>> arrays;  // of the state
  bool operator==(const OptimizerState&) const = default;
};
OptimizerState MakeState(const Optimizer& optimizer, std::vector<float> values);
void Step(const Optimizer& optimizer, const StepContext& context,
          const float* gradient, OptimizerState* state);
// Equal as bytes, so that NaN equals itself and -0 differs from 0.
bool SameBits(const OptimizerState& a, const OptimizerState& b);

// [count] floats: the values before the first step; a step's gradients.
const std::vector<float>& GoldenInputs();
inline std::vector<float> GoldenStart() {
  return {GoldenInputs().begin(), GoldenInputs().begin() + kGoldenElements};
}
inline const float* GoldenGradient(int step) {
  return GoldenInputs().data() + (step + 1) * kGoldenElements;
}

class OptimizerSuite : public testing::TestWithParam<GoldenCase> {};
// A test without a case of its own still links the suite.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OptimizerSuite);

}  // namespace weir

#endif  // TESTS_SERVER_PS_OPTIMIZER_OPTIMIZER_SUITE_H_
