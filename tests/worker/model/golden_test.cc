// Losses, gradients and outputs against PyTorch's, by goldens/goldens.txt.
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"

namespace weir {
namespace {

struct Golden {
  std::string name, model;
  std::vector<float> shape, rows, features, labels, loss, outputs;
  std::map<std::string, std::vector<float>> params, grads;
};

std::vector<float> ReadFloats(std::istream& in) {
  std::vector<float> values;
  for (float value; in >> value;) {
    values.push_back(value);
  }
  return values;
}

std::vector<Golden> ReadGoldens() {
  const char* root = std::getenv("TEST_SRCDIR");
  std::ifstream file(std::string(root == nullptr ? "." : root) +
                     "/weir/tests/worker/model/goldens/goldens.txt");
  std::vector<Golden> goldens;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string key;
    std::string name;
    in >> key;
    if (key == "case") {
      in >> goldens.emplace_back().name;
    } else if (key == "model") {
      std::getline(in, goldens.back().model);
    } else if (key == "param" || key == "grad") {
      in >> name;
      auto& map = key == "param" ? goldens.back().params : goldens.back().grads;
      map[name] = ReadFloats(in);
    } else if (key != "version" && key != "end") {
      Golden& g = goldens.back();
      std::map<std::string, std::vector<float>*> fields = {
          {"shape", &g.shape},   {"rows", &g.rows}, {"features", &g.features},
          {"labels", &g.labels}, {"loss", &g.loss}, {"outputs", &g.outputs}};
      *fields.at(key) = ReadFloats(in);
    }
  }
  return goldens;
}

TEST(GoldenTest, LossGradientsAndOutputsArePyTorchs) {
  const std::vector<Golden> goldens = ReadGoldens();
  ASSERT_EQ(goldens.size(), 5u);
  for (const Golden& golden : goldens) {
    SCOPED_TRACE(golden.name);
    auto created = NetworkTester::Create(
        golden.model, {golden.shape.begin(), golden.shape.end()});
    ASSERT_TRUE(created.ok()) << created.status();
    NetworkTester& tester = **created;
    ASSERT_EQ(golden.params.size(), tester.network().variables().size());
    for (const auto& [name, values] : golden.params) {
      ASSERT_EQ(tester.elements(name), static_cast<int64_t>(values.size()));
      std::copy(values.begin(), values.end(), tester.parameter(name));
    }
    const auto rows = static_cast<int64_t>(golden.rows.at(0));
    const auto result = tester.network().TrainStep(
        golden.features.data(), golden.labels.data(), rows, 1, {});
    ASSERT_TRUE(result.ok()) << result.status();
    // Float32 through a handful of layers, against float64.
    EXPECT_NEAR(result->loss, golden.loss.at(0), 2e-6);
    for (const auto& [name, values] : golden.grads) {
      double norm = 0.0;
      for (const float v : values) {
        norm += v * v;
      }
      if (norm < 1e-12) {  // zero by nature: a bias before batch norm
        for (size_t i = 0; i < values.size(); ++i) {
          EXPECT_NEAR(tester.gradient(name)[i], 0.0, 1e-6) << name;
        }
      } else {
        EXPECT_LT(RelativeError(tester.gradient(name), values.data(),
                                static_cast<int64_t>(values.size())),
                  1e-5)
            << name;
      }
    }
    const auto evaluated = tester.network().Evaluate(
        golden.features.data(), golden.labels.data(), rows);
    ASSERT_TRUE(evaluated.ok()) << evaluated.status();
    ASSERT_EQ(evaluated->outputs.size(), golden.outputs.size());
    EXPECT_LT(RelativeError(evaluated->outputs.data(), golden.outputs.data(),
                            static_cast<int64_t>(golden.outputs.size())),
              1e-5);
  }
}

}  // namespace
}  // namespace weir
