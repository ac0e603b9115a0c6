#include "tests/worker/model/network_tester.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/math/random.h"
#include "google/protobuf/text_format.h"
#include "worker/compute/factory.h"

namespace weir {

Model ParseModel(const std::string& text) {
  Model model;
  WEIR_CHECK(google::protobuf::TextFormat::ParseFromString(text, &model));
  return model;
}

SparseSpec MakeSparseSpec(const std::vector<std::string>& tables,
                          const std::vector<std::string>& features) {
  SparseSpec sparse;
  sparse.features = features;
  for (const std::string& table : tables) {
    const std::vector<std::string> parts = absl::StrSplit(table, ':');
    sparse.tables.emplace_back().set_name(parts[0]);
    sparse.tables.back().set_dim(std::stoi(parts.at(1)));
  }
  return sparse;
}

std::vector<float> RandomFloats(uint64_t seed, int64_t count, float low,
                                float high) {
  RandomStream random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = random.NextFloat(low, high);
  }
  return values;
}

double RelativeError(const float* a, const float* b, int64_t count) {
  double difference = 0.0;
  double norm = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    const double d = static_cast<double>(a[i]) - b[i];
    difference += d * d;
    norm += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(difference) / std::max(std::sqrt(norm), 1e-30);
}

absl::StatusOr<std::unique_ptr<NetworkTester>> NetworkTester::Create(
    const std::string& model, const std::vector<int64_t>& sample_shape,
    std::unique_ptr<Backend> backend, const SparseSpec& sparse) {
  std::unique_ptr<NetworkTester> tester(new NetworkTester);
  tester->backend_ = std::move(backend);
  if (tester->backend_ == nullptr) {
    WEIR_ASSIGN_OR_RETURN(tester->backend_, CreateBackend({}));
  }
  WEIR_ASSIGN_OR_RETURN(
      tester->network_,
      Network::Create(ParseModel(model), sample_shape, tester->backend_.get(),
                      {.sparse = sparse}));
  tester->bags_ = sparse.features.size();
  tester->tables_.resize(tester->network_->tables().size());
  if (!tester->network_->variables().empty()) {
    WEIR_RETURN_IF_ERROR(tester->Bind());
  }
  return tester;
}

absl::Status NetworkTester::Bind() {
  WEIR_ASSIGN_OR_RETURN(Layout layout,
                        Layout::Create(network_->variables(), 1, 1024));
  layout_ = std::make_unique<Layout>(std::move(layout));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  gradients_.assign(layout_->flat_elements(), nan);
  parameters_.assign(layout_->flat_elements(), nan);
  for (size_t v = 0; v < network_->variables().size(); ++v) {
    const VariableSpec& variable = network_->variables()[v];
    const bool buffer = variable.kind == VariableKind::kBuffer;
    const std::vector<float> values =
        RandomFloats(100 + v, variable.elements(), buffer ? 0.5f : -0.5f,
                     buffer ? 1.0f : 0.5f);
    std::copy(values.begin(), values.end(), parameter(variable.name));
  }
  return network_->Bind(*layout_, parameters(), gradients());
}

float* NetworkTester::parameter(const std::string& name) {
  WEIR_CHECK(layout_->Find(name) >= 0);
  return parameters_.data() + layout_->flat_begin(layout_->Find(name));
}

float* NetworkTester::gradient(const std::string& name) {
  WEIR_CHECK(layout_->Find(name) >= 0);
  return gradients_.data() + layout_->flat_begin(layout_->Find(name));
}

int64_t NetworkTester::elements(const std::string& name) const {
  return layout_->variables()[layout_->Find(name)].elements();
}

void NetworkTester::MakeBatch(uint64_t seed, int64_t rows) {
  rows_ = rows;
  features_ =
      RandomFloats(seed, rows * network_->feature_elements(), -1.0f, 1.0f);
  labels_ = RandomFloats(seed + 1, rows * network_->label_width(), 0.0f, 1.0f);
  if (network_->loss() != LossKind::kMeanSquaredError) {
    const bool softmax = network_->loss() == LossKind::kSoftmaxCrossEntropy;
    const auto classes =
        static_cast<float>(softmax ? network_->output_width() : 2);
    for (float& label : labels_) {
      label = std::floor(label * classes);
    }
  }
  SparseBatch batch;
  RandomStream random(seed + 2);
  for (size_t f = 0; f < bags_; ++f) {
    SparseFeature& feature = batch.features.emplace_back();
    for (int64_t r = 0; r < rows; ++r) {
      for (uint32_t k = random.NextBelow(4); k > 0; --k) {
        feature.ids.push_back(random.NextBelow(10));
        if (f % 2 == 1) {
          feature.weights.push_back(random.NextFloat(0.5f, 1.5f));
        }
      }
      feature.offsets.push_back(static_cast<int64_t>(feature.ids.size()));
    }
  }
  SetBags(batch, rows);
}

void NetworkTester::SetBags(const SparseBatch& batch, int64_t rows) {
  for (size_t t = 0; t < tables_.size(); ++t) {
    const GraphTable& table = network_->tables()[t];
    const absl::Status filled = tables_[t].batch.Fill(table.uses, batch, rows);
    WEIR_CHECK(filled.ok());
    tables_[t].rows.clear();
    for (const uint64_t id : tables_[t].batch.ids()) {
      const std::vector<float> row =
          RandomFloats(1000 * t + id, table.dim, -0.5f, 0.5f);
      tables_[t].rows.insert(tables_[t].rows.end(), row.begin(), row.end());
    }
    tables_[t].gradients.assign(tables_[t].rows.size(),
                                std::numeric_limits<float>::quiet_NaN());
  }
}

std::vector<TableInput> NetworkTester::table_inputs() {
  std::vector<TableInput> inputs;
  for (Table& table : tables_) {
    inputs.push_back({.batch = &table.batch,
                      .rows = table.rows.data(),
                      .gradients = table.gradients.data()});
  }
  return inputs;
}

absl::StatusOr<StepResult> NetworkTester::Step(uint64_t seed,
                                               const StepHooks& hooks) {
  return network_->TrainStep(features_.data(), labels_.data(), rows_, seed,
                             hooks, table_inputs());
}

void NetworkTester::CheckGradient(const std::string& name,
                                  const std::vector<float>& actual,
                                  float* values, double tolerance,
                                  std::string* worst) {
  // Float32 losses are good to 1e-7, which over a step of 2 * 1e-3 leaves 5e-5;
  // a longer step would meet more of the kinks of relu and max_pool.
  constexpr float kStep = 1e-3f;
  double difference = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const float old = values[i];
    values[i] = old + kStep;
    const double up = Step().value().loss;
    values[i] = old - kStep;
    const double down = Step().value().loss;
    values[i] = old;
    const double expected = (up - down) / (2.0 * kStep);
    difference += (actual[i] - expected) * (actual[i] - expected);
    norm += expected * expected;
  }
  // A gradient that is zero by nature (a bias before batch norm) is compared
  // with 1e-2 instead.
  const double error = std::sqrt(difference) / std::max(std::sqrt(norm), 1e-2);
  if (!(error <= tolerance)) {
    absl::StrAppend(worst, name, ": relative error ", error, ", norm ",
                    std::sqrt(norm), "\n");
  }
}

std::string NetworkTester::CheckGradients(double tolerance) {
  absl::StatusOr<StepResult> result = Step();
  if (!result.ok()) {
    return result.status().ToString();
  }
  const std::vector<float> gradients = gradients_;
  std::vector<std::vector<float>> of_tables;
  for (const Table& table : tables_) {
    of_tables.push_back(table.gradients);
  }
  std::string worst;
  for (const VariableSpec& variable : network_->variables()) {
    if (variable.kind != VariableKind::kBuffer) {
      const auto begin =
          gradients.begin() + (gradient(variable.name) - gradients_.data());
      CheckGradient(variable.name, {begin, begin + variable.elements()},
                    parameter(variable.name), tolerance, &worst);
    }
  }
  for (size_t t = 0; t < tables_.size(); ++t) {
    CheckGradient("table " + network_->tables()[t].name, of_tables[t],
                  tables_[t].rows.data(), tolerance, &worst);
  }
  return worst;
}

std::string CheckModelGradients(const std::string& model,
                                const std::vector<int64_t>& sample_shape,
                                int64_t rows, const SparseSpec& sparse) {
  auto tester = NetworkTester::Create(model, sample_shape, nullptr, sparse);
  if (!tester.ok()) {
    return tester.status().ToString();
  }
  (*tester)->MakeBatch(7, rows);
  return (*tester)->CheckGradients(5e-3);
}

std::string CreateError(const std::string& model,
                        const std::vector<int64_t>& sample_shape,
                        const SparseSpec& sparse) {
  const auto tester =
      NetworkTester::Create(model, sample_shape, nullptr, sparse);
  return tester.ok() ? "OK" : std::string(tester.status().message());
}

}  // namespace weir
