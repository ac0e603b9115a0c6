#include "proto/wire/declaration_io.h"

#include <algorithm>
#include <memory>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/job/contribution_list.h"
#include "proto/job/field_rules.h"
#include "proto/job/job_spec_text.h"
#include "re2/re2.h"

namespace weir {
namespace {

std::string ShapeText(const Variable& variable) {
  return absl::StrCat("[", absl::StrJoin(variable.shape(), ", "), "]");
}

// The member of a oneof that is set: "adam", "sync".
std::string ChoiceName(const google::protobuf::Message& message,
                       const char* oneof) {
  const auto* field = message.GetReflection()->GetOneofFieldDescriptor(
      message, message.GetDescriptor()->FindOneofByName(oneof));
  return field == nullptr ? "none" : field->name();
}

// Compares what fixes the bytes of a row. Admission, expiry and the numbers of
// the optimizer may change in a job that goes on.
std::string TableDifference(const EmbeddingTable& theirs,
                            const EmbeddingTable& here, int index) {
  if (theirs.name() != here.name()) {
    return absl::StrCat("table ", index, " is '", theirs.name(),
                        "' on the server, '", here.name(), "' here");
  }
  if (theirs.dim() != here.dim()) {
    return absl::StrCat("rows of table '", here.name(), "' have ", theirs.dim(),
                        " floats on the server, ", here.dim(), " here");
  }
  if (theirs.optimizer().kind_case() != here.optimizer().kind_case()) {
    return absl::StrCat("the optimizer of table '", here.name(), "' is ",
                        ChoiceName(theirs.optimizer(), "kind"),
                        " on the server, ",
                        ChoiceName(here.optimizer(), "kind"), " here");
  }
  const std::string initializer =
      FirstDifference(theirs.initializer(), here.initializer());
  if (!initializer.empty()) {
    return absl::StrCat(
        "table '", here.name(),
        "' has other initial values on the server: ", initializer, " here");
  }
  return "";
}

// Compares everything but the learning rate and the encodings, which each
// worker has for itself.
std::string TableSettingsDifference(EmbeddingTable theirs,
                                    EmbeddingTable here) {
  for (EmbeddingTable* table : {&theirs, &here}) {
    table->clear_schedule();
    table->clear_lookup();
    table->clear_update();
  }
  const std::string difference = FirstDifference(theirs, here);
  if (difference.empty()) {
    return "";
  }
  return absl::StrCat("table '", here.name(),
                      "' has other settings on the server: ", difference,
                      " here");
}

}  // namespace

std::vector<Group> GroupsFromSpec(const JobSpec& spec) {
  std::vector<Group> groups(1);
  *groups[0].mutable_optimizer() = spec.optimizer();
  *groups[0].mutable_schedule() = spec.schedule();
  for (const ParameterGroup& from : spec.parameter_group()) {
    Group group;
    group.set_name(from.name());
    // Replaced as a whole: fields of the job's optimizer or schedule never mix
    // with those of the group's.
    *group.mutable_optimizer() = spec.optimizer();
    if (from.has_optimizer()) {
      *group.mutable_optimizer() = from.optimizer();
    }
    *group.mutable_schedule() = spec.schedule();
    if (from.has_schedule()) {
      *group.mutable_schedule() = from.schedule();
    }
    // The one exception is the learning rate: a group that wants another
    // warm-up or decay need not repeat it.
    if (group.schedule().learning_rate() == 0.0) {
      group.mutable_schedule()->set_learning_rate(
          spec.schedule().learning_rate());
    }
    group.set_frozen(from.frozen());
    groups.push_back(group);
  }
  return groups;
}

std::vector<EmbeddingTable> TablesFromSpec(const JobSpec& spec) {
  std::vector<EmbeddingTable> tables(spec.table().begin(), spec.table().end());
  for (EmbeddingTable& table : tables) {
    if (!table.has_schedule()) {
      *table.mutable_schedule() = spec.schedule();
    } else if (table.schedule().learning_rate() == 0.0) {
      table.mutable_schedule()->set_learning_rate(
          spec.schedule().learning_rate());
    }
  }
  return tables;
}

absl::StatusOr<InitSpec> RowInitOf(const EmbeddingTable& table) {
  EmbeddingTable filled = table;
  FillDefaults(&filled);
  const Initializer& spec = filled.initializer();
  switch (spec.kind_case()) {
    case Initializer::kZeros:
      return InitSpec{InitKind::kConstant, 0.0f};
    case Initializer::kConstant:
      return InitSpec{InitKind::kConstant, spec.constant()};
    case Initializer::kNormalStddev:
      return InitSpec{InitKind::kNormal, spec.normal_stddev()};
    case Initializer::kUniformLimit:
      return InitSpec{InitKind::kUniform, spec.uniform_limit()};
    default:
      return absl::InvalidArgumentError(
          "initializer: rows have no fan in or out; use zeros, constant, "
          "normal_stddev or uniform_limit");
  }
}

absl::Status AssignGroups(const JobSpec& spec,
                          google::protobuf::RepeatedPtrField<Variable>* list) {
  // Names come over the wire: RE2 searches them in linear time and without
  // recursion.
  std::vector<std::unique_ptr<RE2>> patterns;
  for (const ParameterGroup& group : spec.parameter_group()) {
    patterns.push_back(std::make_unique<RE2>(group.match(), RE2::Quiet));
    if (!patterns.back()->ok()) {
      return Invalid("parameter_group '", group.name(), "': match '",
                     group.match(), "': ", patterns.back()->error());
    }
  }
  for (Variable& variable : *list) {
    variable.set_group(0);
    for (size_t g = 0; g < patterns.size(); ++g) {
      if (RE2::PartialMatch(variable.name(), *patterns[g])) {
        variable.set_group(static_cast<uint32_t>(g) + 1);
        break;
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ContributionCount(const Train& train,
                                           uint64_t sample_count,
                                           uint32_t per_step) {
  if (train.batch_size() == 0 || sample_count == 0) {
    return Invalid("train.batch_size is ", train.batch_size(),
                   " and the data set has ", sample_count,
                   " samples; both must be at least 1");
  }
  if (train.steps() > 0) {
    const uint64_t steps_max =
        uint64_t{kContributionsMax} / std::max<uint64_t>(per_step, 1);
    if (train.steps() > steps_max) {
      return Invalid("train.steps is ", train.steps(), "; at most ", steps_max,
                     ", which make 2^38 contributions");
    }
    return train.steps() * std::max<uint64_t>(per_step, 1);
  }
  // Negated, so that a NaN is refused as well.
  if (!(train.epochs() > 0 &&
        train.epochs() * static_cast<double>(sample_count) < 1e18)) {
    return Invalid("train.epochs is ", train.epochs(),
                   " and train.steps is 0: one of them must be positive");
  }
  return static_cast<uint64_t>(ContributionsOf(
      train.epochs(), static_cast<int64_t>(sample_count), train.batch_size()));
}

std::string FirstVariableDifference(
    const google::protobuf::RepeatedPtrField<Variable>& ours,
    const google::protobuf::RepeatedPtrField<Variable>& theirs) {
  for (int v = 0; v < std::min(ours.size(), theirs.size()); ++v) {
    const std::string difference = FirstDifference(ours[v], theirs[v]);
    if (!difference.empty()) {
      return absl::StrCat("variable ", v, " '", ours[v].name(),
                          "': ", difference);
    }
  }
  if (ours.size() != theirs.size()) {
    return absl::StrCat(theirs.size(), " variables in place of ", ours.size());
  }
  return "";
}

std::string FirstTensorDifference(const Declaration& declared,
                                  const Declaration& ours) {
  const int both = std::min(declared.variable_size(), ours.variable_size());
  for (int v = 0; v < both; ++v) {
    const Variable& theirs = declared.variable(v);
    const Variable& here = ours.variable(v);
    if (theirs.name() != here.name()) {
      return absl::StrCat("tensor ", v, " is '", theirs.name(),
                          "' on the server, '", here.name(), "' here");
    }
    if (ShapeText(theirs) != ShapeText(here)) {
      return absl::StrCat("'", here.name(), "' is ", ShapeText(theirs),
                          " on the server, ", ShapeText(here), " here");
    }
    if (theirs.kind() != here.kind() || theirs.group() != here.group()) {
      return absl::StrCat("'", here.name(),
                          "' is in another group, or a buffer in one place "
                          "and not in the other");
    }
  }
  if (declared.variable_size() != ours.variable_size()) {
    return absl::StrCat(declared.variable_size(), " tensors on the server, ",
                        ours.variable_size(), " here");
  }
  if (declared.group_size() != ours.group_size()) {
    return absl::StrCat(declared.group_size(), " groups on the server, ",
                        ours.group_size(), " here");
  }
  for (int g = 0; g < ours.group_size(); ++g) {
    const OptimizerSpec& theirs = declared.group(g).optimizer();
    const OptimizerSpec& here = ours.group(g).optimizer();
    if (theirs.kind_case() != here.kind_case()) {
      return absl::StrCat("the optimizer is ", ChoiceName(theirs, "kind"),
                          " on the server, ", ChoiceName(here, "kind"),
                          " here");
    }
  }
  if (declared.table_size() != ours.table_size()) {
    return absl::StrCat(declared.table_size(), " tables on the server, ",
                        ours.table_size(), " here");
  }
  for (int t = 0; t < ours.table_size(); ++t) {
    const std::string difference =
        TableDifference(declared.table(t), ours.table(t), t);
    if (!difference.empty()) {
      return difference;
    }
  }
  return "";
}

std::string FirstDeclarationDifference(const Declaration& declared,
                                       const Declaration& ours) {
  // First of all, since the loop over tables below needs equally many.
  std::string difference = FirstTensorDifference(declared, ours);
  if (!difference.empty()) {
    return difference;
  }
  // Workers bring the initial values of tensors, but the servers make those of
  // rows: the seed matters only where there are tables.
  uint64_t seed_there = 0;
  uint64_t seed_here = 0;
  if (ours.table_size() > 0) {
    seed_there = declared.seed();
    seed_here = ours.seed();
  }
  const std::tuple<const char*, uint64_t, uint64_t> numbers[] = {
      {"size of a block", declared.block_elements(), ours.block_elements()},
      {"number of ps", declared.shard_count(), ours.shard_count()},
      {"number of workers", declared.slot_count(), ours.slot_count()},
      {"seed of rows", seed_there, seed_here},
  };
  for (const auto& [what, theirs, here] : numbers) {
    if (theirs != here) {
      return absl::StrCat("the ", what, " is ", theirs, " on the server, ",
                          here, " here");
    }
  }
  for (int t = 0; t < ours.table_size(); ++t) {
    difference = TableSettingsDifference(declared.table(t), ours.table(t));
    if (!difference.empty()) {
      return difference;
    }
  }
  // A sync step has one contribution of each worker, and the numbers of workers
  // were compared above.
  const Update& theirs = declared.update();
  const Update& here = ours.update();
  if (theirs.mode_case() != here.mode_case()) {
    return absl::StrCat("the mode is ", ChoiceName(theirs, "mode"),
                        " on the server, ", ChoiceName(here, "mode"), " here");
  }
  if (theirs.bounded_staleness().bound() != here.bounded_staleness().bound()) {
    return absl::StrCat("the staleness bound is ",
                        theirs.bounded_staleness().bound(), " on the server, ",
                        here.bounded_staleness().bound(), " here");
  }
  return "";
}

}  // namespace weir
