#include "proto/job/job_spec_checks.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/job/layout.h"
#include "proto/job/field_checks.h"
#include "proto/job/source_checks.h"

namespace weir {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

constexpr uint32_t kMaxThreads = 1024;
constexpr uint32_t kMaxContributions = 65536;  // a cursor counts a step's
constexpr uint32_t kMaxBatch = 1 << 24;
constexpr uint32_t kMaxUnits = 1 << 24;
constexpr uint32_t kMaxCrossLayers = 64;  // the paper's best have 2 to 4

std::string Quoted(const std::string& text) {
  return absl::StrCat("'", text, "'");
}

// Checks that a choice is made in every message that is present, except for a
// schedule's decay and an expiry's age, and that every number is finite. Walks
// over the whole spec; it ends because no type of the spec contains itself.
absl::Status CheckEveryField(const Message& message, const std::string& path);

absl::Status CheckChosen(const Message& message, const OneofDescriptor* oneof,
                         const std::string& path) {
  const Reflection* const reflection = message.GetReflection();
  // protobuf makes a synthetic oneof of every `optional` field.
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
  if (!std::isfinite(value)) {
    return Invalid(path, value, " is not finite");
  }
  return absl::OkStatus();
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
    return absl::OkStatus();  // names, or numbers that others check
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
  // Lists fields that are set only: an unset message has nothing to check, and
  // whether it must be set is asked elsewhere.
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
  if (!legal) {
    return Invalid("name", Quoted(name),
                   " is not 1 to 40 of a-z, 0-9, _ and -");
  }
  return absl::OkStatus();
}

// A member that is not the chosen one reads as 0 and passes.
absl::Status CheckInitializer(const std::string& path,
                              const Initializer& initializer) {
  WEIR_RETURN_IF_ERROR(NotNegative(path + ".normal_stddev",
                                   double{initializer.normal_stddev()}));
  return NotNegative(path + ".uniform_limit",
                     double{initializer.uniform_limit()});
}

// The padding has PyTorch's bound, half of the window.
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
      // At a rate of 1 the scale 1 / (1 - rate) would be infinite.
      if (layer.dropout().rate() >= 0 && layer.dropout().rate() < 1) {
        return absl::OkStatus();
      }
      return Invalid(path + ".dropout.rate", layer.dropout().rate(),
                     " is not in [0, 1)");
    case Layer::kLayerNorm:
      if (layer.layer_norm().has_epsilon()) {
        return Positive(path + ".layer_norm.epsilon",
                        double{layer.layer_norm().epsilon()});
      }
      return absl::OkStatus();
    case Layer::kEmbeddingBag:
      WEIR_RETURN_IF_ERROR(
          Given(path + ".embedding_bag.table", layer.embedding_bag().table()));
      if (!layer.input().empty()) {
        return Invalid(path + ".input",
                       "an embedding_bag takes no input; name features");
      }
      return absl::OkStatus();
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
  if (train.clip().has_norm()) {
    return Positive("train.clip.norm", double{train.clip().norm()});
  }
  return absl::OkStatus();
}

// A learning rate of 0 means that a group or a table takes the job's.
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

// std::regex reports a bad expression by an exception, which ends here.
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

// Where a range begins with 0, the 0 stands for the default, since the spec
// need not be resolved yet.
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
  // Layout::Create asks for the same, but its message cannot name the field.
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

// A ps checks all of this again, and the ranges of the optimizers' numbers too:
// a program of the SDK declares tables without a JobSpec.
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
  // Only now are all names of tables known.
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
  const double fraction = compression.top_k_fraction();
  if (compression.push() != TOP_K) {
    if (fraction == 0) {
      return absl::OkStatus();
    }
    return Invalid("compression.top_k_fraction",
                   "is for compression.push: TOP_K");
  }
  if (fraction > 0 && fraction <= 0.25) {
    return absl::OkStatus();
  }
  return Invalid("compression.top_k_fraction", fraction,
                 " is not in (0, 0.25]");
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
  // Before the checks of ranges, most of which would let infinity through.
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
  // An unset mode will be resolved to async.
  if (spec.train().prefetch() &&
      spec.update().mode_case() != Update::MODE_NOT_SET &&
      !spec.update().has_async()) {
    return Invalid("train.prefetch", "is for update.async; ",
                   "in the other modes it would break the bound on staleness");
  }
  return CheckRunning(spec);
}

}  // namespace weir
