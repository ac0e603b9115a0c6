// Compares losses, gradients and outputs with PyTorch's, which are in
// goldens/goldens.txt.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/worker/model/network_tester.h"

namespace weir {
namespace {

std::vector<float> ReadFloats(std::istream& in) {
  std::vector<float> values;
  for (float value; in >> value;) {
    values.push_back(value);
  }
  return values;
}

struct Golden {
  std::string name, model;
  std::vector<float> shape, rows, features, labels, loss, outputs;
  std::map<std::string, std::vector<float>> params, grads;
  // For tables: dimensions, rows and gradients by id, and the bags.
  std::vector<std::string> tables;  // "NAME:DIM"
  std::map<std::string, std::map<uint64_t, std::vector<float>>> rows_of,
      grads_of;
  std::vector<std::string> bag_names;
  SparseBatch bags;
};

// Reads "table", "bags" and the lines that follow them.
void ReadTableLine(const std::string& key, std::istream& in, Golden* golden) {
  std::string name;
  in >> name;
  if (key == "table") {
    int dim = 0;
    in >> dim;
    golden->tables.push_back(absl::StrCat(name, ":", dim));
  } else if (key == "bags") {
    golden->bag_names.push_back(name);
    const std::vector<float> offsets = ReadFloats(in);
    golden->bags.features.emplace_back().offsets.assign(offsets.begin(),
                                                        offsets.end());
  } else if (key == "ids") {
    const std::vector<float> ids = ReadFloats(in);
    golden->bags.features.back().ids.assign(ids.begin(), ids.end());
  } else if (key == "weights") {
    golden->bags.features.back().weights = ReadFloats(in);
  } else if (key == "row" || key == "rowgrad") {
    uint64_t id = 0;
    in >> id;
    (key == "row" ? golden->rows_of : golden->grads_of)[name][id] =
        ReadFloats(in);
  }
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
    } else if (key == "table" || key == "bags" || key == "ids" ||
               key == "weights" || key == "row" || key == "rowgrad") {
      ReadTableLine(key, in, &goldens.back());
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

void SetTables(const Golden& golden, int64_t rows, NetworkTester* tester) {
  tester->SetBags(golden.bags, rows);
  for (size_t t = 0; t < tester->tables().size(); ++t) {
    NetworkTester::Table& table = tester->tables()[t];
    table.rows.clear();
    for (const uint64_t id : table.batch.ids()) {
      const std::vector<float>& row =
          golden.rows_of.at(tester->network().tables()[t].name).at(id);
      table.rows.insert(table.rows.end(), row.begin(), row.end());
    }
  }
}

// PyTorch's gradient is zero for an id that the batch does not use.
void CheckTables(const Golden& golden, NetworkTester* tester) {
  for (size_t t = 0; t < tester->tables().size(); ++t) {
    const NetworkTester::Table& table = tester->tables()[t];
    const std::string& name = tester->network().tables()[t].name;
    std::vector<float> expected;
    for (const auto& [id, row] : golden.grads_of.at(name)) {
      const auto& ids = table.batch.ids();
      if (std::find(ids.begin(), ids.end(), id) != ids.end()) {
        expected.insert(expected.end(), row.begin(), row.end());
      } else {
        EXPECT_EQ(row, std::vector<float>(row.size(), 0.0f)) << id;
      }
    }
    ASSERT_EQ(table.gradients.size(), expected.size());
    EXPECT_LT(RelativeError(table.gradients.data(), expected.data(),
                            static_cast<int64_t>(expected.size())),
              1e-5)
        << name;
  }
}

TEST(GoldenTest, LossGradientsAndOutputsArePyTorchs) {
  const std::vector<Golden> goldens = ReadGoldens();
  ASSERT_EQ(goldens.size(), 8u);
  for (const Golden& golden : goldens) {
    SCOPED_TRACE(golden.name);
    auto created = NetworkTester::Create(
        golden.model, {golden.shape.begin(), golden.shape.end()}, nullptr,
        MakeSparseSpec(golden.tables, golden.bag_names));
    ASSERT_TRUE(created.ok()) << created.status();
    NetworkTester& tester = **created;
    ASSERT_EQ(golden.params.size(), tester.network().variables().size());
    for (const auto& [name, values] : golden.params) {
      ASSERT_EQ(tester.elements(name), static_cast<int64_t>(values.size()));
      std::copy(values.begin(), values.end(), tester.parameter(name));
    }
    const auto rows = static_cast<int64_t>(golden.rows.at(0));
    SetTables(golden, rows, &tester);
    const auto result =
        tester.network().TrainStep(golden.features.data(), golden.labels.data(),
                                   rows, 1, {}, tester.table_inputs());
    ASSERT_TRUE(result.ok()) << result.status();
    // Weir computes in float32 through a handful of layers, the golden in
    // float64.
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
    CheckTables(golden, &tester);
    const auto evaluated =
        tester.network().Evaluate(golden.features.data(), golden.labels.data(),
                                  rows, tester.table_inputs());
    ASSERT_TRUE(evaluated.ok()) << evaluated.status();
    ASSERT_EQ(evaluated->outputs.size(), golden.outputs.size());
    EXPECT_LT(RelativeError(evaluated->outputs.data(), golden.outputs.data(),
                            static_cast<int64_t>(golden.outputs.size())),
              1e-5);
  }
}

}  // namespace
}  // namespace weir
