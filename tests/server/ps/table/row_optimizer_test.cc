#include "server/ps/table/row_optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "common/math/simd.h"
#include "google/protobuf/text_format.h"
#include "proto/job/field_rules.h"
#include "server/ps/optimizer/optimizer.h"

namespace weir {
namespace {

constexpr char kGoldens[] = "tests/server/ps/table/goldens/";
constexpr int kRows = 24;
constexpr int kDim = 18;

std::vector<float> ReadFloats(const std::string& name) {
  std::ifstream in(kGoldens + name, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  std::vector<float> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), out.size() * 4);
  return out;
}

struct GoldenStep {
  std::vector<int> ids;
  std::vector<float> gradients;  // [ids, kDim]
};

std::vector<GoldenStep> GoldenSteps() {
  const std::vector<float> inputs = ReadFloats("inputs.f32");
  size_t at = size_t{kRows} * kDim;
  std::vector<GoldenStep> steps;
  std::ifstream in(std::string(kGoldens) + "steps.txt");
  for (std::string line; std::getline(in, line);) {
    GoldenStep step;
    std::istringstream words(line);
    for (int id = 0; words >> id;) {
      step.ids.push_back(id);
      step.gradients.insert(step.gradients.end(), &inputs[at],
                            &inputs[at] + kDim);
      at += kDim;
    }
    steps.push_back(std::move(step));
  }
  EXPECT_EQ(at, inputs.size());
  EXPECT_EQ(steps.size(), 50u);
  return steps;
}

std::vector<float> GoldenStart() {
  std::vector<float> start = ReadFloats("inputs.f32");
  start.resize(size_t{kRows} * kDim);
  return start;
}

// `text` is the text format of a TableOptimizer.
TableOptimizer Parse(const std::string& text) {
  TableOptimizer spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec));
  return spec;
}

std::unique_ptr<RowOptimizer> Make(const std::string& text) {
  return CreateRowOptimizer(Parse(text), "optimizer").value();
}

std::string Error(const std::string& text) {
  return std::string(
      CreateRowOptimizer(Parse(text), "optimizer").status().message());
}

// Rows of one optimizer, each with its floats and its count.
struct Rows {
  Rows(const RowOptimizer& optimizer, int dim, const std::vector<float>& values)
      : dim(dim), floats(static_cast<size_t>(optimizer.row_floats(dim))) {
    const size_t count = values.size() / static_cast<size_t>(dim);
    data.resize(count * floats);
    updates.resize(count);
    for (size_t r = 0; r < count; ++r) {
      std::copy_n(&values[r * static_cast<size_t>(dim)], dim, row(r));
      optimizer.FillInitialState(dim, row(r));
    }
  }
  float* row(size_t r) { return &data[r * floats]; }
  std::vector<float> values() {
    std::vector<float> out;
    for (size_t r = 0; r < updates.size(); ++r) {
      out.insert(out.end(), row(r), row(r) + dim);
    }
    return out;
  }

  int dim;
  size_t floats;
  std::vector<float> data;
  std::vector<uint32_t> updates;
};

// The gradient of the i-th id is `gradients` + i * dim floats.
void Step(const RowOptimizer& optimizer, const RowStep& step,
          const std::vector<int>& ids, const char* gradients, Rows* rows) {
  std::vector<float*> at;
  std::vector<const char*> from;
  std::vector<uint32_t> updates;
  for (const int id : ids) {
    at.push_back(rows->row(static_cast<size_t>(id)));
    from.push_back(gradients + from.size() * sizeof(float) *
                                   static_cast<size_t>(rows->dim));
    updates.push_back(rows->updates[static_cast<size_t>(id)]++);
  }
  optimizer.Apply(step, {at.data(), from.data(), updates.data(),
                         static_cast<int>(ids.size()), rows->dim});
}

Rows Train(const std::string& spec, double rate) {
  const auto optimizer = Make(spec);
  Rows rows(*optimizer, kDim, GoldenStart());
  uint64_t t = 0;
  for (const GoldenStep& step : GoldenSteps()) {
    Step(*optimizer, {rate, t++}, step.ids,
         reinterpret_cast<const char*>(step.gradients.data()), &rows);
  }
  return rows;
}

// |a - b| <= 1e-6 of the way from the start, as for dense optimizers: float
// arithmetic of 50 steps in another order.
template <class Expected>
void ExpectClose(const std::vector<float>& got, const Expected& expected) {
  const std::vector<float> start = GoldenStart();
  double error = 0;
  double path = 0;
  for (size_t i = 0; i < start.size(); ++i) {
    const double want = static_cast<double>(expected[i]);
    error += std::pow(static_cast<double>(got[i]) - want, 2);
    path += std::pow(want - static_cast<double>(start[i]), 2);
  }
  EXPECT_GT(path, 0);
  EXPECT_LE(std::sqrt(error), 1e-6 * std::sqrt(path));
}

TEST(RowOptimizerTest, FollowsPyTorch) {
  const std::vector<std::pair<std::string, std::string>> specs = {
      {"sgd", "sgd {}"},
      {"adagrad", "adagrad {}"},
      {"adagrad_all", "adagrad { initial_accumulator: 0.2 epsilon: 1e-6 }"},
      {"adam", "adam {}"},
      {"adam_all", "adam { beta1: 0.8 beta2: 0.99 epsilon: 1e-6 }"},
      {"adam_per_row", "adam { per_row_step: true }"}};
  const std::vector<float> reference = ReadFloats("reference.f32");
  std::ifstream cases(std::string(kGoldens) + "cases.txt");
  size_t index = 0;
  std::string name;
  for (double rate = 0; cases >> name >> rate; ++index) {
    SCOPED_TRACE(name);
    ASSERT_LT(index, specs.size());
    ASSERT_EQ(name, specs[index].first);
    const std::vector<float> expected(
        reference.begin() + static_cast<int64_t>(index) * kRows * kDim,
        reference.begin() + static_cast<int64_t>(index + 1) * kRows * kDim);
    ExpectClose(Train(specs[index].second, rate).values(), expected);
  }
  EXPECT_EQ(index, specs.size());
}

// The dense optimizer over each row by itself.
void ExpectBitsOfDense(const std::string& text, double rate) {
  OptimizerSpec proto;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &proto));
  const auto dense = CreateOptimizer(proto, "optimizer").value();
  const auto optimizer = Make(text);
  Rows expected(*optimizer, kDim, GoldenStart());
  for (const GoldenStep& step : GoldenSteps()) {
    for (size_t i = 0; i < step.ids.size(); ++i) {
      float* const row = expected.row(static_cast<size_t>(step.ids[i]));
      float* const state[] = {row + kDim, row + kDim + kDim};
      dense->Apply({0, rate}, row, state,
                   reinterpret_cast<const char*>(&step.gradients[i * kDim]),
                   kDim);
    }
  }
  EXPECT_EQ(Train(text, rate).data, expected.data) << text;
}

TEST(RowOptimizerTest, HasTheBitsOfTheDenseRules) {
  ExpectBitsOfDense("sgd {}", 0.1);
  ExpectBitsOfDense("adagrad { initial_accumulator: 0.3 epsilon: 1e-7 }", 0.1);
  ExpectBitsOfDense("ftrl {}", 0.05);
  ExpectBitsOfDense(
      "ftrl { initial_accumulator: 0.3 l1: 0.01 l2: 0.02 l2_shrinkage: 0.03 "
      "beta: 0.5 }",
      0.05);
  ExpectBitsOfDense("ftrl { learning_rate_power: -0.7 l1: 0.001 }", 0.05);
  ExpectBitsOfDense("ftrl {}", 0);
}

TEST(RowOptimizerTest, RowwiseAdagradFollowsANaiveLoopInDouble) {
  const double rate = 0.05;
  std::vector<double> w;
  for (const float v : GoldenStart()) {
    w.push_back(static_cast<double>(v));
  }
  std::vector<double> n(kRows, 0.2);
  for (const GoldenStep& step : GoldenSteps()) {
    for (size_t i = 0; i < step.ids.size(); ++i) {
      const size_t id = static_cast<size_t>(step.ids[i]);
      double mean = 0;
      for (size_t k = 0; k < kDim; ++k) {
        mean += std::pow(static_cast<double>(step.gradients[i * kDim + k]), 2) /
                kDim;
      }
      n[id] += mean;
      for (size_t k = 0; k < kDim; ++k) {
        w[id * kDim + k] -= rate *
                            static_cast<double>(step.gradients[i * kDim + k]) /
                            (std::sqrt(n[id]) + 1e-6);
      }
    }
  }
  Rows rows =
      Train("rowwise_adagrad { initial_accumulator: 0.2 epsilon: 1e-6 }", rate);
  EXPECT_EQ(rows.floats, kDim + 1u);
  ExpectClose(rows.values(), w);
}

// w by the definition: s, its norm, the shrunken quotient.
std::vector<double> NaiveGroupFtrl(const std::string& text, double rate) {
  TableOptimizer spec = Parse(text);
  FillDefaults(&spec);
  const TableFtrl& f = spec.ftrl();
  const double p = -f.learning_rate_power();
  std::vector<double> w;
  for (const float v : GoldenStart()) {
    w.push_back(static_cast<double>(v));
  }
  std::vector<double> n(w.size(), f.initial_accumulator());
  std::vector<double> z(w.size(), 0.0);
  for (const GoldenStep& step : GoldenSteps()) {
    for (size_t i = 0; i < step.ids.size(); ++i) {
      const size_t begin = static_cast<size_t>(step.ids[i]) * kDim;
      double norm = 0;
      double s[kDim];
      for (size_t k = 0; k < kDim; ++k) {
        const double g = static_cast<double>(step.gradients[i * kDim + k]);
        const size_t e = begin + k;
        const double sigma =
            (std::pow(n[e] + g * g, p) - std::pow(n[e], p)) / rate;
        z[e] += g + 2 * f.l2_shrinkage() * w[e] - sigma * w[e];
        n[e] += g * g;
        s[k] = std::copysign(std::max(std::fabs(z[e]) - f.l1(), 0.0), z[e]);
        norm += s[k] * s[k];
      }
      norm = std::sqrt(norm);
      const double keep =
          norm == 0 ? 0
                    : std::max(0.0, 1 - std::sqrt(kDim * 1.0) * f.l21() / norm);
      for (size_t k = 0; k < kDim; ++k) {
        const size_t e = begin + k;
        w[e] =
            -keep * s[k] /
            (std::pow(n[e], p) / rate + 2 * (f.l2() + f.beta() / (2 * rate)));
      }
    }
  }
  return w;
}

TEST(RowOptimizerTest, GroupFtrlFollowsANaiveLoopInDouble) {
  for (const char* spec :
       {"ftrl { l21: 0.1 }",
        "ftrl { initial_accumulator: 0.3 l1: 0.01 l2: 0.02 l2_shrinkage: 0.03 "
        "beta: 0.5 l21: 0.05 }",
        "ftrl { learning_rate_power: -0.7 l21: 0.1 }"}) {
    ExpectClose(Train(spec, 0.05).values(), NaiveGroupFtrl(spec, 0.05));
  }
}

TEST(RowOptimizerTest, GroupFtrlWithoutGroupPenaltyIsFtrl) {
  // So small a penalty takes the kernel with groups and changes no bit.
  const std::string fields = "l1: 0.01 l2: 0.02 beta: 0.5 ";
  EXPECT_EQ(Train("ftrl { " + fields + "l21: 1e-30 }", 0.05).data,
            Train("ftrl { " + fields + "}", 0.05).data);
}

// The subgradient condition of the minimum that row_optimizer.h states, where n
// is the same in all columns: an oracle that knows no closed form.
TEST(RowOptimizerTest, GroupFtrlMinimisesWhereTheCurvatureIsOne) {
  const double rate = 0.5;
  const double l1 = 0.2;
  const double l21 = 0.3;
  const double root_dim = 2;
  const auto optimizer = Make("ftrl { l1: 0.2 l2: 0.1 l21: 0.3 }");
  // Equal magnitudes, so that n stays equal; only the signs differ.
  for (const float size : {0.1f, 0.7f, 0.9f, 3.0f}) {
    const float g[] = {size, -size, size, size};
    Rows rows(*optimizer, 4, {0, 0, 0, 0});
    Step(*optimizer, {rate, 0}, {0}, reinterpret_cast<const char*>(g), &rows);
    const double q =
        std::sqrt(0.1 + static_cast<double>(size) * size) / rate + 2 * 0.1;
    double norm = 0;
    for (size_t k = 0; k < 4; ++k) {
      norm += std::pow(static_cast<double>(rows.row(0)[k]), 2);
    }
    norm = std::sqrt(norm);
    if (norm == 0) {
      // Zero is the minimum if what l1 leaves of z is inside the ball.
      EXPECT_LE(root_dim * std::max(static_cast<double>(size) - l1, 0.0),
                root_dim * l21 + 1e-6);
      continue;
    }
    EXPECT_GT(size, 0.5f);
    for (size_t k = 0; k < 4; ++k) {
      const double w = static_cast<double>(rows.row(0)[k]);
      EXPECT_NEAR(static_cast<double>(g[k]) + std::copysign(l1, w) +
                      root_dim * l21 * w / norm + q * w,
                  0, 1e-6);
    }
  }
}

TEST(RowOptimizerTest, GroupFtrlSetsWholeRowsToZero) {
  const auto optimizer = Make("ftrl { l21: 1 }");
  Rows rows(*optimizer, 4, {0, 0, 0, 0, 0, 0, 0, 0});
  const float g[] = {0.9f, -0.9f, 0.9f, 0.9f, 0.1f, 0.1f, 5.0f, 0.1f};
  Step(*optimizer, {0.5, 0}, {0, 1}, reinterpret_cast<const char*>(g), &rows);
  for (size_t k = 0; k < 4; ++k) {
    EXPECT_EQ(rows.row(0)[k], 0.0f);
    EXPECT_NE(rows.row(1)[k], 0.0f);
  }
}

TEST(RowOptimizerTest, HasTheSameBitsOnEveryLevelAndAtOddAddresses) {
  const SimdLevel best = ActiveSimdLevel();
  for (const char* spec : std::vector<const char*>{
           "sgd {}", "adagrad {}", "rowwise_adagrad {}", "adam {}",
           "ftrl { l1: 0.01 }", "ftrl { l1: 0.01 l21: 0.02 }"}) {
    const Rows expected = Train(spec, 0.05);
    for (int level = 0; level <= static_cast<int>(best); ++level) {
      SetSimdLevelForTest(static_cast<SimdLevel>(level));
      const auto optimizer = Make(spec);
      Rows rows(*optimizer, kDim, GoldenStart());
      uint64_t t = 0;
      for (const GoldenStep& step : GoldenSteps()) {
        std::string odd = "x";
        odd.append(reinterpret_cast<const char*>(step.gradients.data()),
                   step.gradients.size() * 4);
        Step(*optimizer, {0.05, t++}, step.ids, odd.data() + 1, &rows);
      }
      EXPECT_EQ(rows.data, expected.data) << optimizer->name() << " " << level;
    }
    SetSimdLevelForTest(best);
  }
}

TEST(RowOptimizerTest, LaysStateOutBehindTheValues) {
  EXPECT_EQ(Make("sgd {}")->row_floats(16), 16);
  EXPECT_EQ(Make("adagrad {}")->row_floats(16), 32);
  EXPECT_EQ(Make("rowwise_adagrad {}")->row_floats(16), 17);
  EXPECT_EQ(Make("adam {}")->row_floats(16), 48);
  EXPECT_EQ(Make("ftrl {}")->state(),
            (std::vector<RowState>{{"accumulator", 0.1f}, {"linear", 0.0f}}));
  float row[] = {9, 9, 9, 9, 9, 9};
  Make("ftrl {}")->FillInitialState(2, row);
  EXPECT_EQ(std::vector<float>(row, row + 6),
            (std::vector<float>{9, 9, 0.1f, 0.1f, 0, 0}));
}

TEST(RowOptimizerTest, NamesTheBadField) {
  EXPECT_EQ(Error("adagrad { initial_accumulator: -1 }"),
            "optimizer.adagrad.initial_accumulator: -1 is not >= 0");
  EXPECT_EQ(Error("rowwise_adagrad { epsilon: -1 }"),
            "optimizer.rowwise_adagrad.epsilon: -1 is not >= 0");
  EXPECT_EQ(Error("adam { beta1: 1 }"),
            "optimizer.adam.beta1: 1 is not in [0, 1)");
  EXPECT_EQ(Error("adam { beta2: 2 }"),
            "optimizer.adam.beta2: 2 is not in [0, 1)");
  EXPECT_EQ(Error("ftrl { learning_rate_power: 1 }"),
            "optimizer.ftrl.learning_rate_power: 1 is not in [-10, 0]");
  EXPECT_EQ(Error("ftrl { l1: -1 }"), "optimizer.ftrl.l1: -1 is not >= 0");
  EXPECT_EQ(Error("ftrl { beta: -1 }"), "optimizer.ftrl.beta: -1 is not >= 0");
  EXPECT_EQ(Error("ftrl { l21: -1 }"), "optimizer.ftrl.l21: -1 is not >= 0");
}

}  // namespace
}  // namespace weir
