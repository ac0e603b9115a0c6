#include "tests/worker/model/network_tester.h"

#include <cmath>
#include <limits>

#include "common/check.h"
#include "common/random.h"
#include "common/status.h"
#include "google/protobuf/text_format.h"
#include "worker/compute/factory.h"

namespace weir {

Model ParseModel(const std::string& text) {
  Model model;
  WEIR_CHECK(google::protobuf::TextFormat::ParseFromString(text, &model));
  return model;
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
    const std::string& model, std::vector<int64_t> sample_shape,
    std::unique_ptr<Backend> backend) {
  std::unique_ptr<NetworkTester> tester(new NetworkTester);
  tester->backend_ = std::move(backend);
  if (tester->backend_ == nullptr) {
    WEIR_ASSIGN_OR_RETURN(tester->backend_, CreateBackend({}));
  }
  WEIR_ASSIGN_OR_RETURN(
      tester->network_,
      Network::Create(ParseModel(model), std::move(sample_shape),
                      tester->backend_.get(), {}));
  WEIR_ASSIGN_OR_RETURN(Layout layout,
                        Layout::Create(tester->network_->variables(), 1, 1024));
  tester->layout_ = std::make_unique<Layout>(std::move(layout));
  const int64_t flat = tester->layout_->flat_elements();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  tester->gradients_.assign(flat, nan);
  tester->parameters_.assign(flat, nan);
  for (size_t v = 0; v < tester->network_->variables().size(); ++v) {
    const VariableSpec& variable = tester->network_->variables()[v];
    const bool buffer = variable.kind == VariableKind::kBuffer;
    const std::vector<float> values =
        RandomFloats(100 + v, variable.elements(), buffer ? 0.5f : -0.5f,
                     buffer ? 1.0f : 0.5f);
    std::copy(values.begin(), values.end(), tester->parameter(variable.name));
  }
  WEIR_RETURN_IF_ERROR(tester->network_->Bind(
      *tester->layout_, tester->parameters(), tester->gradients()));
  return tester;
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
}

absl::StatusOr<StepResult> NetworkTester::Step(uint64_t seed,
                                               const StepHooks& hooks) {
  return network_->TrainStep(features_.data(), labels_.data(), rows_, seed,
                             hooks);
}

std::string NetworkTester::CheckGradients(double tolerance) {
  // Float32 losses are good to 1e-7, which over a step of 2 * 1e-3 leaves 5e-5;
  // a longer step would meet more of the kinks of relu and max_pool.
  constexpr float kStep = 1e-3f;
  absl::StatusOr<StepResult> result = Step();
  if (!result.ok()) {
    return result.status().ToString();
  }
  const std::vector<float> gradients = gradients_;
  std::string worst;
  for (const VariableSpec& variable : network_->variables()) {
    if (variable.kind == VariableKind::kBuffer) {
      continue;
    }
    const float* actual =
        gradients.data() + (gradient(variable.name) - gradients_.data());
    float* value = parameter(variable.name);
    double difference = 0.0;
    double norm = 0.0;
    for (int64_t i = 0; i < variable.elements(); ++i) {
      const float old = value[i];
      value[i] = old + kStep;
      const double up = Step().value().loss;
      value[i] = old - kStep;
      const double down = Step().value().loss;
      value[i] = old;
      const double expected = (up - down) / (2.0 * kStep);
      difference += (actual[i] - expected) * (actual[i] - expected);
      norm += expected * expected;
    }
    // A gradient that is zero by nature (a bias before batch norm) is compared
    // with 1e-2 instead.
    const double error =
        std::sqrt(difference) / std::max(std::sqrt(norm), 1e-2);
    if (!(error <= tolerance)) {
      absl::StrAppend(&worst, variable.name, ": relative error ", error,
                      ", norm ", std::sqrt(norm), "\n");
    }
  }
  return worst;
}

std::string CheckModelGradients(const std::string& model,
                                std::vector<int64_t> sample_shape,
                                int64_t rows) {
  auto tester = NetworkTester::Create(model, std::move(sample_shape));
  if (!tester.ok()) {
    return tester.status().ToString();
  }
  (*tester)->MakeBatch(7, rows);
  return (*tester)->CheckGradients(5e-3);
}

std::string CreateError(const std::string& model,
                        std::vector<int64_t> sample_shape) {
  const auto tester = NetworkTester::Create(model, std::move(sample_shape));
  return tester.ok() ? "OK" : std::string(tester.status().message());
}

}  // namespace weir
