#include "client/cc/sdk/declaration.h"

#include <google/protobuf/message.h>

#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cc/sdk/fields.h"
#include "common/base/status.h"
#include "proto/job/field_rules.h"
#include "proto/job/job_spec_checks.h"
#include "proto/job/learning_rate.h"
#include "proto/wire/layout_io.h"

namespace weir::sdk {
namespace {

using google::protobuf::Message;

// How many bytes of early contributions a ps keeps in sync. Beyond that they
// are deferred and sent again, which costs time but never fails.
constexpr uint64_t kOutOfOrderBytes = uint64_t{256} << 20;

// As of limits.lost_after_seconds in a job file: what is less is no time in
// milliseconds, and what is far more is none in nanoseconds.
constexpr double kSecondsMin = 0.001;
constexpr double kSecondsMax = 86400.0;

absl::Status CheckSeconds(const char* name, double seconds) {
  if (seconds >= kSecondsMin && seconds <= kSecondsMax) {
    return absl::OkStatus();
  }
  return Invalid("Options.", name, " is ", seconds, "; choose ", kSecondsMin,
                 " to ", kSecondsMax);
}

absl::StatusOr<Encoding> ParseEncoding(const std::string& name) {
  Encoding encoding = F32;
  // The SDK's names are the proto's in lower case, and only in lower case.
  if (name != absl::AsciiStrToLower(name) ||
      !Encoding_Parse(absl::AsciiStrToUpper(name), &encoding)) {
    return absl::InvalidArgumentError(
        absl::StrCat("no encoding is called '", name,
                     "'; choose f32, bf16, f16, int8 or top_k"));
  }
  return encoding;
}

// Sets the field `name` of `to`. Leaves it alone if `to` has no such field, or
// if `value` is not set: each optimizer has its own default, which the ps
// knows.
void SetField(Message* to, const char* name, double value) {
  if (const auto* field = to->GetDescriptor()->FindFieldByName(name)) {
    to->GetReflection()->SetDouble(to, field, value);
  }
}
void SetField(Message* to, const char* name, bool value) {
  if (const auto* field = to->GetDescriptor()->FindFieldByName(name)) {
    to->GetReflection()->SetBool(to, field, value);
  }
}
void SetField(Message* to, const char* name, std::optional<double> value) {
  if (value.has_value()) {
    SetField(to, name, *value);
  }
}

// Sets those fields of `from` that `to` has under the same name.
template <typename Options>
void SetFields(Options from, Message* to) {
  ForEachField(&from, [to](const char* name, const auto* value) {
    SetField(to, name, *value);
  });
}

// The message in the field `name` of `message`, which is set by this.
Message* MutableField(Message* message, const char* name) {
  return message->GetReflection()->MutableMessage(
      message, message->GetDescriptor()->FindFieldByName(name));
}

Group ToGroup(const Optimizer& optimizer) {
  Group group;
  group.mutable_schedule()->set_learning_rate(optimizer.learning_rate);
  SetFields(optimizer,
            MutableField(group.mutable_optimizer(),
                         kOptimizerNames[static_cast<int>(optimizer.kind)]));
  return group;
}

// What the fields of an EmbeddingTable cannot say.
absl::Status CheckTable(const Table& table) {
  if (table.dim < 1) {
    return InvalidField("dim", table.dim, " is not at least 1");
  }
  if ((table.admission_count > 0 && table.admission_probability != 0.0) ||
      (table.expiry_steps > 0 && table.expiry_seconds > 0)) {
    return absl::InvalidArgumentError(
        "give one of a count and a probability of admission, one of steps and "
        "seconds of expiry");
  }
  return absl::OkStatus();
}

// Which ids get rows, and which rows go. What is 0 stays unset, so that the ps
// applies its defaults.
void SetLife(const Table& from, EmbeddingTable* to) {
  if (from.admission_count > 0) {
    to->mutable_admission()->set_count(from.admission_count);
  } else if (from.admission_probability != 0.0) {
    to->mutable_admission()->set_probability(from.admission_probability);
  }
  // The filter counts the ids that wait to be admitted.
  if (to->has_admission() && from.admission_filter_bytes > 0) {
    to->mutable_admission()->set_filter_bytes(from.admission_filter_bytes);
  }
  if (from.expiry_steps > 0) {
    to->mutable_expiry()->set_steps(from.expiry_steps);
  } else if (from.expiry_seconds > 0) {
    to->mutable_expiry()->set_seconds(from.expiry_seconds);
  }
  if (from.memory_bytes > 0) {
    to->mutable_expiry()->set_memory_bytes(from.memory_bytes);
    to->mutable_expiry()->set_least_frequent(from.least_frequent);
  }
}

// Checks and translates one table, whose defaults are left to the ps.
absl::StatusOr<EmbeddingTable> ToTable(const Table& from) {
  WEIR_RETURN_IF_ERROR(CheckTable(from));
  EmbeddingTable to;
  to.set_name(from.name);
  to.set_dim(static_cast<uint32_t>(from.dim));
  SetFields(
      from.optimizer,
      MutableField(to.mutable_optimizer(),
                   kRowOptimizerNames[static_cast<int>(from.optimizer.kind)]));
  to.mutable_schedule()->set_learning_rate(from.optimizer.learning_rate);
  switch (from.init) {
    case Table::Init::kUniform:
      to.mutable_initializer()->set_uniform_limit(from.init_scale);
      break;
    case Table::Init::kNormal:
      to.mutable_initializer()->set_normal_stddev(from.init_scale);
      break;
    case Table::Init::kConstant:
      to.mutable_initializer()->set_constant(from.init_scale);
      break;
  }
  SetLife(from, &to);
  WEIR_ASSIGN_OR_RETURN(const Encoding lookup,
                        ParseEncoding(from.lookup_encoding));
  WEIR_ASSIGN_OR_RETURN(const Encoding update,
                        ParseEncoding(from.update_encoding));
  to.set_lookup(lookup);
  to.set_update(update);
  WEIR_RETURN_IF_ERROR(CheckFields(to, ""));
  WEIR_RETURN_IF_ERROR(CheckLearningRate(to.schedule(), "schedule"));
  return to;
}

}  // namespace

absl::Status CheckOptions(const Options& options) {
  if (options.ps.empty()) {
    return absl::InvalidArgumentError(
        "Options.ps is empty: name the parameter servers, or call FromEnv()");
  }
  if (options.worker_count < 1 || options.rank < 0 ||
      options.rank >= options.worker_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options.rank, " is not below worker_count ",
                     options.worker_count));
  }
  WEIR_RETURN_IF_ERROR(
      CheckSeconds("lost_after_seconds", options.lost_after_seconds));
  WEIR_RETURN_IF_ERROR(
      CheckSeconds("start_wait_seconds", options.start_wait_seconds));
  if (options.groups.empty()) {
    return absl::InvalidArgumentError("Options.groups has no optimizer");
  }
  for (const Optimizer& group : options.groups) {
    if (group.kind != options.groups[0].kind) {
      return absl::InvalidArgumentError(
          "Options.groups has optimizers of several kinds; a job has one");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Compression> ToCompression(const Options& options) {
  Compression compression;
  WEIR_ASSIGN_OR_RETURN(const Encoding push,
                        ParseEncoding(options.push_encoding));
  WEIR_ASSIGN_OR_RETURN(const Encoding pull,
                        ParseEncoding(options.pull_encoding));
  compression.set_push(push);
  compression.set_pull(pull);
  // Elsewhere the fraction has no meaning, and validation would refuse it.
  if (push == TOP_K) {
    compression.set_top_k_fraction(options.top_k_fraction);
  }
  WEIR_RETURN_IF_ERROR(ValidateCompression(compression));
  return compression;
}

absl::StatusOr<std::vector<VariableSpec>> ToVariables(
    const Options& options, const std::vector<Tensor>& tensors) {
  std::vector<VariableSpec> variables;
  for (const Tensor& tensor : tensors) {
    VariableSpec variable;
    variable.name = tensor.name;
    variable.shape = tensor.shape;
    if (tensor.buffer) {
      variable.kind = VariableKind::kBuffer;
      variable.buffer_rate = 1.0f;  // a push brings the value itself
    }
    variable.init = {InitKind::kUniform, tensor.init_scale};
    variable.group = tensor.group;
    variable.export_dtype = tensor.export_dtype;
    variable.aliases = tensor.aliases;
    if (!tensor.values.empty() &&
        static_cast<int64_t>(tensor.values.size()) != variable.elements()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", tensor.name, "' has ", variable.elements(),
                       " elements and ", tensor.values.size(), " values"));
    }
    if (tensor.group < 0 ||
        tensor.group >= static_cast<int>(options.groups.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", tensor.name, "' is of group ", tensor.group,
                       "; there are ", options.groups.size()));
    }
    variables.push_back(std::move(variable));
  }
  return variables;
}

Declaration ToDeclaration(const Options& options,
                          const std::vector<VariableSpec>& variables) {
  Declaration declaration;
  declaration.set_job(options.job);
  declaration.set_shard_count(static_cast<uint32_t>(options.ps.size()));
  declaration.set_block_elements(static_cast<uint64_t>(options.block_elements));
  for (const VariableSpec& variable : variables) {
    *declaration.add_variable() = VariableToProto(variable);
  }
  for (const Optimizer& group : options.groups) {
    *declaration.add_group() = ToGroup(group);
  }
  const auto workers = static_cast<uint32_t>(options.worker_count);
  Update* const update = declaration.mutable_update();
  switch (options.mode) {
    case Mode::kAsync:
      update->mutable_async();
      break;
    case Mode::kSync:
      // One contribution of every worker makes a step.
      update->mutable_sync()->set_contributions(workers);
      break;
    case Mode::kBoundedStaleness:
      update->mutable_bounded_staleness()->set_bound(
          static_cast<uint32_t>(options.staleness_bound));
      break;
  }
  declaration.set_seed(options.seed);
  declaration.set_slot_count(workers);
  declaration.set_out_of_order_bytes(kOutOfOrderBytes);
  return declaration;
}

absl::Status AddTables(const std::vector<Table>& tables, Declaration* to) {
  std::set<std::string> names;
  for (const Table& table : tables) {
    if (!names.insert(table.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("table '", table.name, "' is declared twice"));
    }
    absl::StatusOr<EmbeddingTable> made = ToTable(table);
    WEIR_RETURN_IF_ERROR(
        Annotate(made.status(), absl::StrCat("table '", table.name, "'")));
    *to->add_table() = *std::move(made);
  }
  return absl::OkStatus();
}

std::vector<Hyper> ToHyper(const std::vector<GroupSettings>& settings) {
  std::vector<Hyper> result;
  for (const GroupSettings& from : settings) {
    Hyper hyper;
    hyper.set_group(static_cast<uint32_t>(from.group));
    SetFields(from, &hyper);
    result.push_back(std::move(hyper));
  }
  return result;
}

ServerStatus ToServerStatus(const std::string& address,
                            const PsStatus& status) {
  ServerStatus result;
  result.address = address;
  result.ready = status.hello().state() == ACTIVE;
  result.job = status.hello().job();
  result.version_min = status.version_min();
  result.version_max = status.version_max();
  result.blocks_accepted = status.chunks_accepted();
  result.blocks_duplicate = status.chunks_duplicate();
  result.blocks_left_out = status.chunks_left_out();
  result.staleness_max = status.staleness_max();
  result.bytes_resident = status.bytes_resident();
  for (const weir::TableStatus& table : status.table()) {
    result.tables.push_back({table.name(), table.rows(), table.bytes()});
  }
  return result;
}

}  // namespace weir::sdk
