#include "tests/server/ps/optimizer/optimizer_suite.h"

#include <google/protobuf/text_format.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "common/math/simd.h"

namespace weir {
namespace {

std::vector<float> ReadFloats(const std::string& name) {
  std::ifstream in(kGoldens + name, std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  const std::string text = bytes.str();
  std::vector<float> out(text.size() / sizeof(float));
  std::memcpy(out.data(), text.data(), out.size() * sizeof(float));
  return out;
}

std::vector<std::pair<double, double>> ReadCycle(const std::string& name) {
  std::vector<std::pair<double, double>> cycle;
  std::ifstream in(std::string(kGoldens) + "cycles.txt");
  std::string line;
  while (std::getline(in, line)) {
    std::stringstream words(line);
    std::string word;
    words >> word;
    double rate = 0;
    double momentum = 0;
    while (word == name && words >> rate >> momentum) {
      cycle.emplace_back(rate, momentum);
    }
  }
  return cycle;
}

// The values after every golden step.
std::vector<float> Train(const GoldenCase& golden) {
  const auto optimizer = MakeOptimizer(golden.spec);
  OptimizerState state = MakeState(*optimizer, GoldenStart());
  for (int t = 0; t < kGoldenSteps; ++t) {
    Step(*optimizer, golden.At(t), GoldenGradient(t), &state);
  }
  return state.values;
}

double Distance(const std::vector<float>& a, const float* b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += d * d;
  }
  return std::sqrt(sum);
}

absl::StatusOr<std::unique_ptr<Optimizer>> TryOptimizer(
    const std::string& spec) {
  const std::string average = "moving_average ";
  if (spec.rfind(average, 0) == 0) {
    return CreateMovingAverage(std::stod(spec.substr(average.size())));
  }
  OptimizerSpec proto;
  if (!google::protobuf::TextFormat::ParseFromString(spec, &proto)) {
    return absl::InternalError("not an Optimizer: " + spec);
  }
  return CreateOptimizer(proto, "optimizer");
}

// A state in which every state holds something, after a few golden steps.
OptimizerState Warm(const Optimizer& optimizer, const GoldenCase& golden) {
  OptimizerState state = MakeState(optimizer, GoldenStart());
  for (int t = 0; t < 3; ++t) {
    Step(optimizer, golden.At(t), GoldenGradient(t), &state);
  }
  return state;
}

// Steps elements [begin, end) with the gradient copied `shift` bytes past an
// aligned address.
void StepRange(const Optimizer& optimizer, const StepContext& context,
               int begin, int end, int shift, OptimizerState* state) {
  const int count = end - begin;
  // The vector's memory is aligned for any type.
  std::vector<char> raw(static_cast<size_t>(count) * 4 + 4);
  char* start = raw.data() + shift;
  std::memcpy(start, GoldenGradient(3) + begin, static_cast<size_t>(count) * 4);
  float* arrays[Optimizer::kMaxStateArrays] = {};
  for (size_t k = 0; k < state->arrays.size(); ++k) {
    arrays[k] = state->arrays[k].data() + begin;
  }
  optimizer.Apply(context, state->values.data() + begin, arrays, start, count);
}

TEST_P(OptimizerSuite, StaysWithinOneMillionthOfTheReferencesPath) {
  if (GetParam().index < 0) {
    GTEST_SKIP() << "the reference has no such optimizer";
  }
  const std::vector<float> got = Train(GetParam());
  const std::vector<float> reference = ReadFloats("reference.f32");
  const float* expected =
      reference.data() + size_t{kGoldenElements} * GetParam().index;
  const double path = Distance(GoldenStart(), expected);
  ASSERT_GT(path, 0);
  EXPECT_LE(Distance(got, expected), 1e-6 * path);
}

TEST_P(OptimizerSuite, HasTheBitsOfTheReferenceWithoutFusedMultiplyAdd) {
  if (GetParam().index < 0 || GetParam().name == "ftrl_power") {
    GTEST_SKIP() << "no reference, or one with another pow()";
  }
  const std::vector<float> got = Train(GetParam());
  const std::vector<float> reference = ReadFloats("reference_plain.f32");
  const float* expected =
      reference.data() + size_t{kGoldenElements} * GetParam().index;
  int different = 0;
  for (int i = 0; i < kGoldenElements; ++i) {
    different += got[static_cast<size_t>(i)] != expected[i];
  }
  EXPECT_EQ(different, 0) << "of " << kGoldenElements << " elements";
}

TEST_P(OptimizerSuite, GivesTheSameBitsWhereverARangeIsCut) {
  const auto optimizer = MakeOptimizer(GetParam().spec);
  const StepContext context = GetParam().At(3);
  const OptimizerState before = Warm(*optimizer, GetParam());
  for (const int count : {64, 65, 127, 200, 320}) {
    OptimizerState whole = before;
    StepRange(*optimizer, context, 0, count, 0, &whole);
    for (int cut = 0; cut <= 64; ++cut) {
      OptimizerState parts = before;
      StepRange(*optimizer, context, 0, cut, cut % 4, &parts);
      StepRange(*optimizer, context, cut, count, (cut / 4) % 4, &parts);
      ASSERT_TRUE(SameBits(whole, parts)) << count << " cut at " << cut;
    }
  }
}

TEST_P(OptimizerSuite, ReadsAGradientAtAnyAddress) {
  const auto optimizer = MakeOptimizer(GetParam().spec);
  const StepContext context = GetParam().At(3);
  const OptimizerState before = Warm(*optimizer, GetParam());
  OptimizerState aligned = before;
  StepRange(*optimizer, context, 0, kGoldenElements, 0, &aligned);
  EXPECT_FALSE(SameBits(before, aligned));
  for (int shift = 1; shift < 4; ++shift) {
    OptimizerState shifted = before;
    StepRange(*optimizer, context, 0, kGoldenElements, shift, &shifted);
    EXPECT_TRUE(SameBits(aligned, shifted)) << shift;
  }
}

TEST_P(OptimizerSuite, GivesTheSameBitsOnEverySimdLevel) {
  const SimdLevel best = BestSimdLevel();
  SetSimdLevelForTest(SimdLevel::kBaseline);
  const std::vector<float> expected = Train(GetParam());
  for (int level = 1; level <= static_cast<int>(best); ++level) {
    SetSimdLevelForTest(static_cast<SimdLevel>(level));
    const std::vector<float> got = Train(GetParam());
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * 4), 0)
        << "level " << level;
  }
  SetSimdLevelForTest(best);
}

TEST_P(OptimizerSuite, TakesTheSameStepAfterSaveAndRestore) {
  const auto optimizer = MakeOptimizer(GetParam().spec);
  OptimizerState running = MakeState(*optimizer, GoldenStart());
  OptimizerState restored;
  auto again = MakeOptimizer(GetParam().spec);
  for (int t = 0; t < 20; ++t) {
    const StepContext context = GetParam().At(t);
    if (t == 10) {
      restored = running;  // values and state are all that is kept
    }
    Step(*optimizer, context, GoldenGradient(t), &running);
    if (t >= 10) {
      Step(*again, context, GoldenGradient(t), &restored);
      ASSERT_TRUE(SameBits(running, restored)) << "step " << t;
    }
  }
}

}  // namespace

StepContext GoldenCase::At(int step) const {
  StepContext context = {static_cast<uint64_t>(step), learning_rate};
  if (!cycle.empty()) {
    context.learning_rate = cycle[static_cast<size_t>(step)].first;
    context.momentum = cycle[static_cast<size_t>(step)].second;
  }
  return context;
}

std::ostream& operator<<(std::ostream& out, const GoldenCase& golden) {
  return out << golden.name << ": " << golden.spec;
}

auto GoldenCases(const std::string& prefix)
    -> decltype(testing::ValuesIn(std::vector<GoldenCase>())) {
  std::vector<GoldenCase> cases;
  std::ifstream in(std::string(kGoldens) + "cases.txt");
  std::string line;
  for (int index = 0; std::getline(in, line); ++index) {
    std::stringstream words(line);
    GoldenCase golden;
    words >> golden.name >> golden.learning_rate;
    std::getline(words, golden.spec);
    golden.index = index;
    golden.cycle = ReadCycle(golden.name);
    if (golden.name.rfind(prefix, 0) == 0) {
      cases.push_back(golden);
    }
  }
  return testing::ValuesIn(cases);
}

std::unique_ptr<Optimizer> MakeOptimizer(const std::string& spec) {
  auto optimizer = TryOptimizer(spec);
  EXPECT_TRUE(optimizer.ok()) << optimizer.status();
  return optimizer.ok() ? std::move(optimizer).value() : nullptr;
}

std::string OptimizerError(const std::string& spec) {
  const absl::Status status = TryOptimizer(spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

OptimizerState MakeState(const Optimizer& optimizer,
                         std::vector<float> values) {
  OptimizerState state;
  for (const StateSpec& spec : optimizer.state()) {
    state.arrays.emplace_back(values.size(), spec.initial);
  }
  state.values = std::move(values);
  return state;
}

void Step(const Optimizer& optimizer, const StepContext& context,
          const float* gradient, OptimizerState* state) {
  float* arrays[Optimizer::kMaxStateArrays] = {};
  for (size_t k = 0; k < state->arrays.size(); ++k) {
    arrays[k] = state->arrays[k].data();
  }
  optimizer.Apply(context, state->values.data(), arrays,
                  reinterpret_cast<const char*>(gradient),
                  static_cast<int64_t>(state->values.size()));
}

bool SameBits(const OptimizerState& a, const OptimizerState& b) {
  const auto same = [](const std::vector<float>& x,
                       const std::vector<float>& y) {
    return x.size() == y.size() &&
           std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  };
  bool equal = same(a.values, b.values) && a.arrays.size() == b.arrays.size();
  for (size_t k = 0; equal && k < a.arrays.size(); ++k) {
    equal = same(a.arrays[k], b.arrays[k]);
  }
  return equal;
}

const std::vector<float>& GoldenInputs() {
  static const auto* inputs = new std::vector<float>(ReadFloats("inputs.f32"));
  return *inputs;
}

}  // namespace weir
