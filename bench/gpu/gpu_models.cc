#include "bench/gpu/gpu_models.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/math/random.h"
#include "google/protobuf/text_format.h"

namespace weir {
namespace {

struct ModelText {
  const char* name;
  std::vector<int64_t> sample_shape;
  int64_t batch;
  int64_t classes;
  const char* spec;
};

// 20 M parameters, nearly all in three products.
constexpr char kMlp[] = R"(
  layer { name: "flat" flatten {} }
  layer { name: "fc1" dense { units: 4096 } } layer { name: "relu1" relu {} }
  layer { name: "fc2" dense { units: 4096 } } layer { name: "relu2" relu {} }
  layer { name: "logits" dense { units: 10 } }
  loss { softmax_cross_entropy {} })";

// The model of examples/mnist_convnet.textproto.
constexpr char kConvNet[] = R"(
  layer { name: "conv1" conv2d { filters: 32 kernel_size: 3 padding: 1 } }
  layer { name: "relu1" relu {} } layer { name: "pool1" max_pool { size: 2 } }
  layer { name: "conv2" conv2d { filters: 64 kernel_size: 3 padding: 1 } }
  layer { name: "relu2" relu {} } layer { name: "pool2" max_pool { size: 2 } }
  layer { name: "flat" flatten {} }
  layer { name: "hidden" dense { units: 128 } }
  layer { name: "relu3" relu {} } layer { name: "drop" dropout { rate: 0.25 } }
  layer { name: "logits" dense { units: 10 } }
  loss { softmax_cross_entropy {} })";

// 61 M parameters, 58.6 M of them in the dense layers. Krizhevsky, "One weird
// trick for parallelizing convolutional neural networks", 2014, on one GPU.
constexpr char kAlexNet[] = R"(
  layer { name: "conv1"
          conv2d { filters: 64 kernel_size: 11 stride: 4 padding: 2 } }
  layer { name: "relu1" relu {} }
  layer { name: "pool1" max_pool { size: 3 stride: 2 } }
  layer { name: "conv2" conv2d { filters: 192 kernel_size: 5 padding: 2 } }
  layer { name: "relu2" relu {} }
  layer { name: "pool2" max_pool { size: 3 stride: 2 } }
  layer { name: "conv3" conv2d { filters: 384 kernel_size: 3 padding: 1 } }
  layer { name: "relu3" relu {} }
  layer { name: "conv4" conv2d { filters: 256 kernel_size: 3 padding: 1 } }
  layer { name: "relu4" relu {} }
  layer { name: "conv5" conv2d { filters: 256 kernel_size: 3 padding: 1 } }
  layer { name: "relu5" relu {} }
  layer { name: "pool5" max_pool { size: 3 stride: 2 } }
  layer { name: "flat" flatten {} }
  layer { name: "drop6" dropout { rate: 0.5 } }
  layer { name: "fc6" dense { units: 4096 } } layer { name: "relu6" relu {} }
  layer { name: "drop7" dropout { rate: 0.5 } }
  layer { name: "fc7" dense { units: 4096 } } layer { name: "relu7" relu {} }
  layer { name: "logits" dense { units: 1000 } }
  loss { softmax_cross_entropy {} })";

const std::vector<ModelText>& Texts() {
  static const auto* const texts = new std::vector<ModelText>{
      {"mlp", {1, 28, 28}, 1024, 10, kMlp},
      {"convnet", {1, 28, 28}, 512, 10, kConvNet},
      {"alexnet", {3, 224, 224}, 256, 1000, kAlexNet}};
  return *texts;
}

}  // namespace

const std::vector<std::string>& GpuModelNames() {
  static const auto* const names = [] {
    auto* all = new std::vector<std::string>;
    for (const ModelText& text : Texts()) {
      all->emplace_back(text.name);
    }
    return all;
  }();
  return *names;
}

absl::StatusOr<GpuModel> MakeGpuModel(const std::string& name) {
  for (const ModelText& text : Texts()) {
    if (name == text.name) {
      GpuModel model{.name = name,
                     .spec = {},
                     .sample_shape = text.sample_shape,
                     .batch = text.batch,
                     .classes = text.classes};
      if (!google::protobuf::TextFormat::ParseFromString(text.spec,
                                                         &model.spec)) {
        return absl::InternalError(absl::StrCat("model ", name));
      }
      return model;
    }
  }
  return absl::NotFoundError(absl::StrCat("there is no model '", name, "'"));
}

Precision PrecisionOf(const std::string& name) {
  if (name == "tf32") {
    return Precision::kTf32;
  }
  if (name == "bf16") {
    return Precision::kBf16;
  }
  return Precision::kFp32;
}

Compute::Precision JobPrecisionOf(const std::string& name) {
  if (name == "tf32") {
    return Compute::TF32;
  }
  if (name == "bf16") {
    return Compute::BF16;
  }
  return Compute::FP32;
}

absl::StatusOr<std::unique_ptr<GpuStepper>> GpuStepper::Create(
    const GpuModel& model, const BackendOptions& backend, bool transfers) {
  std::unique_ptr<GpuStepper> stepper(new GpuStepper);
  stepper->rows_ = model.batch;
  WEIR_ASSIGN_OR_RETURN(stepper->backend_, CreateBackend(backend));
  WEIR_ASSIGN_OR_RETURN(
      stepper->network_,
      Network::Create(model.spec, model.sample_shape, stepper->backend_.get(),
                      {.rows_reserved = model.batch, .transfers = transfers}));
  const Network& network = *stepper->network_;
  WEIR_ASSIGN_OR_RETURN(
      const Layout layout,
      Layout::Create(network.variables(), 1, Layout::kDefaultBlockElements));
  RandomStream random(1);
  stepper->parameters_.resize(layout.flat_elements());
  stepper->gradients_.resize(layout.flat_elements());
  for (float& value : stepper->parameters_) {
    value = random.NextFloat(-0.02f, 0.02f);
  }
  stepper->features_.resize(model.batch * network.feature_elements());
  for (float& value : stepper->features_) {
    value = random.NextFloat(-1.0f, 1.0f);
  }
  stepper->labels_.resize(model.batch);
  for (float& label : stepper->labels_) {
    label = static_cast<float>(random.NextBelow(model.classes));
  }
  WEIR_RETURN_IF_ERROR(stepper->network_->Bind(
      layout, stepper->parameters_.data(), stepper->gradients_.data()));
  return stepper;
}

absl::Status GpuStepper::Step(const StepHooks& hooks) {
  return network_
      ->TrainStep(features_.data(), labels_.data(), rows_, ++seed_, hooks)
      .status();
}

}  // namespace weir
