#include "proto/job/job_spec_defaults.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/job/layout.h"
#include "proto/job/field_checks.h"
#include "proto/job/job_spec_checks.h"

namespace weir {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

constexpr uint32_t kMaxThreads = 1024;
constexpr uint32_t kMaxContributions = 65536;  // a cursor counts them, per step
constexpr uint32_t kMaxBatch = 1 << 24;
constexpr uint32_t kMaxUnits = 1 << 24;
constexpr uint32_t kMaxCrossLayers = 64;  // the paper's best have 2 to 4

// ---------------------------------------------------------------- defaults

void ResolveInitializers(Layer* layer) {
  if (layer->has_dense()) {
    Dense* const dense = layer->mutable_dense();
    if (!dense->has_kernel_initializer()) {
      dense->mutable_kernel_initializer()->mutable_glorot_uniform();
    }
    if (!dense->no_bias() && !dense->has_bias_initializer()) {
      dense->mutable_bias_initializer()->mutable_zeros();
    }
  }
  if (layer->has_conv2d()) {
    Conv2d* const conv = layer->mutable_conv2d();
    if (!conv->has_kernel_initializer()) {
      conv->mutable_kernel_initializer()->mutable_he_normal();
    }
    if (!conv->no_bias() && !conv->has_bias_initializer()) {
      conv->mutable_bias_initializer()->mutable_zeros();
    }
  }
}

void ResolvePool(Pool* pool) {
  if (pool->stride() == 0) {
    pool->set_stride(pool->size());
  }
}

void ResolveLayer(Layer* layer) {
  ResolveInitializers(layer);
  if (layer->has_conv2d() && layer->conv2d().stride() == 0) {
    layer->mutable_conv2d()->set_stride(1);
  }
  if (layer->has_cross() && layer->cross().layers() == 0) {
    layer->mutable_cross()->set_layers(1);
  }
  if (layer->has_max_pool()) {
    ResolvePool(layer->mutable_max_pool());
  }
  if (layer->has_average_pool()) {
    ResolvePool(layer->mutable_average_pool());
  }
  if (layer->has_layer_norm() && !layer->layer_norm().has_epsilon()) {
    layer->mutable_layer_norm()->set_epsilon(1e-5f);
  }
  if (layer->has_batch_norm()) {
    BatchNorm* const norm = layer->mutable_batch_norm();
    if (!norm->has_epsilon()) {
      norm->set_epsilon(1e-5f);
    }
    if (!norm->has_momentum()) {
      norm->set_momentum(0.1f);
    }
  }
}

void ResolveModel(Model* model) {
  std::string before = "features";
  for (Layer& layer : *model->mutable_layer()) {
    if (layer.input().empty() && !layer.has_embedding_bag()) {
      layer.add_input(before);
    }
    before = layer.name();
    ResolveLayer(&layer);
  }
  if (!model->layer().empty() && model->loss().input().empty()) {
    model->mutable_loss()->set_input(before);
  }
}

// ---------------------------------------------------------------- checks

std::string Quoted(const std::string& text) {
  return absl::StrCat("'", text, "'");
}

// Every oneof of `message` that is present must be chosen, except a schedule's
// decay and an expiry's age; every number must be finite. Recursive over the
// whole spec, whose types are not recursive.
absl::Status CheckEveryField(const Message& message, const std::string& path);

absl::Status CheckChosen(const Message& message, const OneofDescriptor* oneof,
                         const std::string& path) {
  const Reflection* const reflection = message.GetReflection();
  if (oneof->is_synthetic() || oneof->name() == "decay" ||
      oneof->name() == "age" || reflection->HasOneof(message, oneof)) {
    return absl::OkStatus();
  }
  std::vector<std::string> names;
  for (int i = 0; i < oneof->field_count(); ++i) {
    names.push_back(oneof->field(i)->name());
  }
  return Invalid(path, "no ", oneof->name(), " is set; choose one of ",
                 absl::StrJoin(names, ", "));
}

absl::Status CheckFinite(double value, const std::string& path) {
  return std::isfinite(value) ? absl::OkStatus()
                              : Invalid(path, value, " is not finite");
}

absl::Status CheckField(const Message& message, const FieldDescriptor* field,
                        const std::string& path) {
  const Reflection* const reflection = message.GetReflection();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    if (!field->is_repeated()) {
      return CheckEveryField(reflection->GetMessage(message, field), path);
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      WEIR_RETURN_IF_ERROR(
          CheckEveryField(reflection->GetRepeatedMessage(message, field, i),
                          absl::StrCat(path, "[", i, "]")));
    }
  } else if (field->is_repeated()) {
    return absl::OkStatus();  // Names, or numbers with rules of their own.
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    return CheckFinite(reflection->GetDouble(message, field), path);
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
    return CheckFinite(reflection->GetFloat(message, field), path);
  }
  return absl::OkStatus();
}

absl::Status CheckEveryField(const Message& message, const std::string& path) {
  const Descriptor* const type = message.GetDescriptor();
  for (int i = 0; i < type->oneof_decl_count(); ++i) {
    WEIR_RETURN_IF_ERROR(CheckChosen(message, type->oneof_decl(i), path));
  }
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    WEIR_RETURN_IF_ERROR(
        CheckField(message, field,
                   absl::StrCat(path, path.empty() ? "" : ".", field->name())));
  }
  return absl::OkStatus();
}

absl::Status CheckName(const std::string& name) {
  const bool legal = !name.empty() && name.size() <= 40 &&
                     std::all_of(name.begin(), name.end(), [](char c) {
                       return (c >= 'a' && c <= 'z') ||
                              (c >= '0' && c <= '9') || c == '_' || c == '-';
                     });
  return legal ? absl::OkStatus()
               : Invalid("name", Quoted(name),
                         " is not 1 to 40 of a-z, 0-9, _ and -");
}

absl::Status CheckInitializer(const std::string& path,
                              const Initializer& initializer) {
  WEIR_RETURN_IF_ERROR(NotNegative(path + ".normal_stddev",
                                   double{initializer.normal_stddev()}));
  return NotNegative(path + ".uniform_limit",
                     double{initializer.uniform_limit()});
}

absl::Status CheckPool(const std::string& path, const Pool& pool) {
  WEIR_RETURN_IF_ERROR(
      InRange<uint32_t>(path + ".size", pool.size(), 1, kMaxUnits));
  return InRange<uint32_t>(path + ".padding", pool.padding(), 0,
                           pool.size() / 2);
}

absl::Status CheckConv2d(const std::string& path, const Conv2d& conv) {
  WEIR_RETURN_IF_ERROR(
      InRange<uint32_t>(path + ".filters", conv.filters(), 1, kMaxUnits));
  WEIR_RETURN_IF_ERROR(InRange<uint32_t>(path + ".kernel_size",
                                         conv.kernel_size(), 1, kMaxUnits));
  WEIR_RETURN_IF_ERROR(CheckInitializer(path + ".kernel_initializer",
                                        conv.kernel_initializer()));
  return CheckInitializer(path + ".bias_initializer", conv.bias_initializer());
}

absl::Status CheckLayer(const std::string& path, const Layer& layer) {
  WEIR_RETURN_IF_ERROR(Given(path + ".name", layer.name()));
  switch (layer.kind_case()) {
    case Layer::kDense: {
      const std::string at = path + ".dense";
      WEIR_RETURN_IF_ERROR(InRange<uint32_t>(
          at + ".units", layer.dense().units(), 1, kMaxUnits));
      WEIR_RETURN_IF_ERROR(CheckInitializer(
          at + ".kernel_initializer", layer.dense().kernel_initializer()));
      return CheckInitializer(at + ".bias_initializer",
                              layer.dense().bias_initializer());
    }
    case Layer::kConv2D:
      return CheckConv2d(path + ".conv2d", layer.conv2d());
    case Layer::kMaxPool:
      return CheckPool(path + ".max_pool", layer.max_pool());
    case Layer::kAveragePool:
      return CheckPool(path + ".average_pool", layer.average_pool());
    case Layer::kDropout:
      return layer.dropout().rate() >= 0 && layer.dropout().rate() < 1
                 ? absl::OkStatus()
                 : Invalid(path + ".dropout.rate", layer.dropout().rate(),
                           " is not in [0, 1)");
    case Layer::kLayerNorm:
      return layer.layer_norm().has_epsilon()
                 ? Positive(path + ".layer_norm.epsilon",
                            double{layer.layer_norm().epsilon()})
                 : absl::OkStatus();
    case Layer::kEmbeddingBag:
      WEIR_RETURN_IF_ERROR(
          Given(path + ".embedding_bag.table", layer.embedding_bag().table()));
      return layer.input().empty()
                 ? absl::OkStatus()
                 : Invalid(path + ".input",
                           "an embedding_bag takes none, but features");
    case Layer::kCross:
      return InRange<uint32_t>(path + ".cross.layers", layer.cross().layers(),
                               0, kMaxCrossLayers);
    case Layer::kBatchNorm: {
      const BatchNorm& norm = layer.batch_norm();
      if (norm.has_epsilon()) {
        WEIR_RETURN_IF_ERROR(
            Positive(path + ".batch_norm.epsilon", double{norm.epsilon()}));
      }
      return InRange<float>(path + ".batch_norm.momentum", norm.momentum(), 0,
                            1);
    }
    default:
      return absl::OkStatus();
  }
}

absl::Status CheckModel(const Model& model) {
  if (model.layer().empty()) {
    return Invalid("model.layer", "is empty; a model has at least one layer");
  }
  std::set<std::string> names;
  for (int i = 0; i < model.layer_size(); ++i) {
    const std::string path = absl::StrCat("model.layer[", i, "]");
    WEIR_RETURN_IF_ERROR(CheckLayer(path, model.layer(i)));
    if (!names.insert(model.layer(i).name()).second) {
      return Invalid(path + ".name", Quoted(model.layer(i).name()),
                     " is another layer's name already");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTrain(const Train& train) {
  WEIR_RETURN_IF_ERROR(
      InRange<uint32_t>("train.batch_size", train.batch_size(), 1, kMaxBatch));
  WEIR_RETURN_IF_ERROR(NotNegative("train.epochs", train.epochs()));
  if ((train.epochs() > 0) == (train.steps() > 0)) {
    return Invalid("train", "set epochs or steps, above 0");
  }
  if (train.clip().has_value()) {
    return Positive("train.clip.value", double{train.clip().value()});
  }
  return train.clip().has_norm()
             ? Positive("train.clip.norm", double{train.clip().norm()})
             : absl::OkStatus();
}

absl::Status CheckSchedule(const std::string& path, const Schedule& schedule) {
  WEIR_RETURN_IF_ERROR(
      NotNegative(path + ".learning_rate", schedule.learning_rate()));
  switch (schedule.decay_case()) {
    case Schedule::kStep:
      WEIR_RETURN_IF_ERROR(Positive(
          path + ".step.every", static_cast<double>(schedule.step().every())));
      return Positive(path + ".step.factor", schedule.step().factor());
    case Schedule::kExponential:
      WEIR_RETURN_IF_ERROR(
          Positive(path + ".exponential.every",
                   static_cast<double>(schedule.exponential().every())));
      return Positive(path + ".exponential.factor",
                      schedule.exponential().factor());
    case Schedule::kCosine:
      WEIR_RETURN_IF_ERROR(
          Positive(path + ".cosine.steps",
                   static_cast<double>(schedule.cosine().steps())));
      return InRange<double>(path + ".cosine.final_fraction",
                             schedule.cosine().final_fraction(), 0, 1);
    case Schedule::DECAY_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

// std::regex reports a bad expression by exception; it ends here.
absl::Status CheckRegex(const std::string& path, const std::string& text) {
  WEIR_RETURN_IF_ERROR(Given(path, text));
  try {
    const std::regex regex(text, std::regex::ECMAScript);
  } catch (const std::regex_error& error) {
    return Invalid(path, Quoted(text),
                   " is not an ECMAScript regular expression: ", error.what());
  }
  return absl::OkStatus();
}

absl::Status CheckGroups(const JobSpec& spec) {
  std::set<std::string> names;
  for (int i = 0; i < spec.parameter_group_size(); ++i) {
    const ParameterGroup& group = spec.parameter_group(i);
    const std::string path = absl::StrCat("parameter_group[", i, "]");
    WEIR_RETURN_IF_ERROR(Given(path + ".name", group.name()));
    if (!names.insert(group.name()).second) {
      return Invalid(path + ".name", Quoted(group.name()),
                     " is another group's name already");
    }
    WEIR_RETURN_IF_ERROR(CheckRegex(path + ".match", group.match()));
    if (group.has_optimizer() &&
        group.optimizer().kind_case() != spec.optimizer().kind_case()) {
      return Invalid(path + ".optimizer",
                     "is of another kind than the job's optimizer");
    }
    WEIR_RETURN_IF_ERROR(CheckSchedule(path + ".schedule", group.schedule()));
  }
  return absl::OkStatus();
}

absl::Status CheckRunning(const JobSpec& spec) {
  WEIR_RETURN_IF_ERROR(InRange<uint32_t>("update.sync.contributions",
                                         spec.update().sync().contributions(),
                                         0, kMaxContributions));
  WEIR_RETURN_IF_ERROR(NotNegative("checkpoint.every_seconds",
                                   spec.checkpoint().every_seconds()));
  if (spec.has_evaluation()) {
    WEIR_RETURN_IF_ERROR(
        CheckSource("evaluation.source", spec.evaluation().source()));
    WEIR_RETURN_IF_ERROR(InRange<uint32_t>(
        "evaluation.batch_size", spec.evaluation().batch_size(), 0, kMaxBatch));
    if (!spec.evaluation().auc_group().empty() &&
        !spec.model().loss().has_sigmoid_cross_entropy()) {
      return Invalid("evaluation.auc_group",
                     "AUC is of a model.loss of sigmoid_cross_entropy");
    }
    WEIR_RETURN_IF_ERROR(NotNegative("evaluation.wait_seconds",
                                     spec.evaluation().wait_seconds()));
  }
  WEIR_RETURN_IF_ERROR(InRange<uint32_t>(
      "compute.threads", spec.compute().threads(), 0, kMaxThreads));
  const uint64_t block = spec.limits().block_elements();
  if (block % Layout::kAlignElements != 0 ||
      block > uint64_t{Layout::kMaxBlockElements}) {
    return Invalid("limits.block_elements", block, " is not a multiple of ",
                   Layout::kAlignElements, " up to ",
                   Layout::kMaxBlockElements);
  }
  return NotNegative("limits.lost_after_seconds",
                     spec.limits().lost_after_seconds());
}

// What a ps checks again, and the ranges of an optimizer's numbers besides.
absl::Status CheckTables(const JobSpec& spec) {
  std::set<std::string> names;
  for (int i = 0; i < spec.table_size(); ++i) {
    const EmbeddingTable& table = spec.table(i);
    const std::string path = absl::StrCat("table[", i, "]");
    if (!std::regex_match(table.name(), std::regex("[a-z0-9_]{1,64}"))) {
      return Invalid(path + ".name", Quoted(table.name()),
                     " does not match [a-z0-9_]{1,64}");
    }
    if (!names.insert(table.name()).second) {
      return Invalid(path + ".name", Quoted(table.name()),
                     " is another table's name already");
    }
    WEIR_RETURN_IF_ERROR(
        InRange<uint32_t>(path + ".dim", table.dim(), 1, 65536));
    if (table.has_schedule()) {
      WEIR_RETURN_IF_ERROR(CheckSchedule(path + ".schedule", table.schedule()));
    }
    const Initializer& init = table.initializer();
    if (init.has_glorot_uniform() || init.has_glorot_normal() ||
        init.has_he_uniform() || init.has_he_normal()) {
      return Invalid(path + ".initializer",
                     "rows have no fan in or out; choose one of zeros, "
                     "constant, normal_stddev, uniform_limit");
    }
    WEIR_RETURN_IF_ERROR(CheckInitializer(path + ".initializer", init));
    if ((table.cache_rows() > 0 || table.cache_contributions() > 0) &&
        spec.update().has_sync()) {
      return Invalid(path + ".cache_rows", "is not for update.sync, ",
                     "whose steps read one version of every row");
    }
    for (const auto& [encoding, field] :
         {std::pair(table.lookup(), ".lookup"), {table.update(), ".update"}}) {
      if (encoding == TOP_K) {
        return Invalid(path + field, "rows travel as F32, BF16, F16 or INT8");
      }
    }
  }
  for (int i = 0; i < spec.model().layer_size(); ++i) {
    const Layer& layer = spec.model().layer(i);
    if (layer.has_embedding_bag() &&
        names.count(layer.embedding_bag().table()) == 0) {
      return Invalid(absl::StrCat("model.layer[", i, "].embedding_bag.table"),
                     Quoted(layer.embedding_bag().table()),
                     " is no table of the job");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateCompression(const Compression& compression) {
  for (const auto& [encoding, path] :
       {std::pair(compression.push(), "compression.push"),
        {compression.pull(), "compression.pull"}}) {
    if (!Encoding_IsValid(encoding)) {
      return Invalid(path, encoding, " is not an encoding");
    }
  }
  if (compression.pull() == TOP_K) {
    return Invalid("compression.pull",
                   "TOP_K is for pushes; choose F32, BF16, F16 or INT8");
  }
  if (compression.push() != TOP_K) {
    return compression.top_k_fraction() == 0
               ? absl::OkStatus()
               : Invalid("compression.top_k_fraction",
                         "is for compression.push: TOP_K");
  }
  const double fraction = compression.top_k_fraction();
  return fraction > 0 && fraction <= 0.25
             ? absl::OkStatus()
             : Invalid("compression.top_k_fraction", fraction,
                       " is not in (0, 0.25]");
}

void ResolveDefaults(JobSpec* spec) {
  if (spec->has_model()) {
    ResolveModel(spec->mutable_model());
  }
  if (spec->data().has_train()) {
    ResolveSource(spec->mutable_data()->mutable_train());
  }
  if (spec->train().log_every_steps() == 0) {
    spec->mutable_train()->set_log_every_steps(10);
  }
  for (ParameterGroup& group : *spec->mutable_parameter_group()) {
    if (group.has_schedule() && group.schedule().learning_rate() == 0) {
      group.mutable_schedule()->set_learning_rate(
          spec->schedule().learning_rate());
    }
  }
  if (spec->update().mode_case() == Update::MODE_NOT_SET) {
    spec->mutable_update()->mutable_async();
  }
  if (spec->checkpoint().keep() == 0) {
    spec->mutable_checkpoint()->set_keep(5);
  }
  if (spec->table_size() > 0 && spec->checkpoint().tables_full_every() == 0) {
    spec->mutable_checkpoint()->set_tables_full_every(5);
  }
  if (spec->has_evaluation()) {
    Evaluation* const evaluation = spec->mutable_evaluation();
    if (evaluation->has_source()) {
      ResolveSource(evaluation->mutable_source());
    }
    if (evaluation->batch_size() == 0) {
      evaluation->set_batch_size(256);
    }
    if (!evaluation->has_wait_seconds()) {
      evaluation->set_wait_seconds(60);
    }
  }
  if (spec->compute().threads() == 0) {
    spec->mutable_compute()->set_threads(1);
  }
  if (spec->compression().push() == TOP_K &&
      spec->compression().top_k_fraction() == 0) {
    spec->mutable_compression()->set_top_k_fraction(0.01);
  }
  Limits* const limits = spec->mutable_limits();
  if (limits->block_elements() == 0) {
    limits->set_block_elements(Layout::kDefaultBlockElements);
  }
  if (limits->out_of_order_bytes() == 0) {
    limits->set_out_of_order_bytes(uint64_t{256} << 20);
  }
  if (limits->lost_after_seconds() == 0) {
    limits->set_lost_after_seconds(10);
  }
}

absl::Status ValidateJobSpec(const JobSpec& spec) {
  WEIR_RETURN_IF_ERROR(CheckName(spec.name()));
  for (const auto& [present, path] : {std::pair(spec.has_model(), "model"),
                                      {spec.has_data(), "data"},
                                      {spec.has_train(), "train"},
                                      {spec.has_optimizer(), "optimizer"},
                                      {spec.has_schedule(), "schedule"}}) {
    if (!present) {
      return Invalid(path, "is not set");
    }
  }
  WEIR_RETURN_IF_ERROR(CheckEveryField(spec, ""));
  WEIR_RETURN_IF_ERROR(CheckModel(spec.model()));
  if (!spec.model().has_loss() ||
      spec.model().loss().kind_case() == Loss::KIND_NOT_SET) {
    return Invalid("model.loss", "is not set; choose one of ",
                   "softmax_cross_entropy, sigmoid_cross_entropy, "
                   "mean_squared_error");
  }
  WEIR_RETURN_IF_ERROR(CheckSource("data.train", spec.data().train()));
  WEIR_RETURN_IF_ERROR(CheckTrain(spec.train()));
  WEIR_RETURN_IF_ERROR(
      Positive("schedule.learning_rate", spec.schedule().learning_rate()));
  WEIR_RETURN_IF_ERROR(CheckSchedule("schedule", spec.schedule()));
  WEIR_RETURN_IF_ERROR(CheckGroups(spec));
  WEIR_RETURN_IF_ERROR(CheckTables(spec));
  WEIR_RETURN_IF_ERROR(ValidateCompression(spec.compression()));
  if (spec.train().prefetch() &&
      spec.update().mode_case() != Update::MODE_NOT_SET &&
      !spec.update().has_async()) {
    return Invalid("train.prefetch", "is for update.async; ",
                   "in the other modes it would break the bound on staleness");
  }
  return CheckRunning(spec);
}

}  // namespace weir
