#include "proto/declaration_io.h"

#include <algorithm>
#include <cmath>
#include <regex>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "proto/job_spec_io.h"

namespace weir {
namespace {

// The standard library reports a bad pattern by throwing; it ends here.
absl::StatusOr<std::regex> CompilePattern(const ParameterGroup& group) {
  try {
    return std::regex(group.match(), std::regex::ECMAScript);
  } catch (const std::regex_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter_group '", group.name(), "': match '",
                     group.match(), "' is not a regular expression"));
  }
}

}  // namespace

std::vector<Group> GroupsFromSpec(const JobSpec& spec) {
  std::vector<Group> groups(1);
  *groups[0].mutable_optimizer() = spec.optimizer();
  *groups[0].mutable_schedule() = spec.schedule();
  for (const ParameterGroup& from : spec.parameter_group()) {
    Group group;
    group.set_name(from.name());
    *group.mutable_optimizer() =
        from.has_optimizer() ? from.optimizer() : spec.optimizer();
    *group.mutable_schedule() =
        from.has_schedule() ? from.schedule() : spec.schedule();
    if (group.schedule().learning_rate() == 0.0) {
      group.mutable_schedule()->set_learning_rate(
          spec.schedule().learning_rate());
    }
    group.set_frozen(from.frozen());
    groups.push_back(group);
  }
  return groups;
}

absl::Status AssignGroups(const JobSpec& spec,
                          google::protobuf::RepeatedPtrField<Variable>* list) {
  std::vector<std::regex> patterns;
  for (const ParameterGroup& group : spec.parameter_group()) {
    WEIR_ASSIGN_OR_RETURN(std::regex pattern, CompilePattern(group));
    patterns.push_back(std::move(pattern));
  }
  for (Variable& variable : *list) {
    variable.set_group(0);
    for (size_t g = 0; g < patterns.size(); ++g) {
      if (std::regex_search(variable.name(), patterns[g])) {
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
    return absl::InvalidArgumentError(absl::StrCat(
        "train.batch_size is ", train.batch_size(), " and the data set has ",
        sample_count, " samples; both must be at least 1"));
  }
  uint64_t count = 0;
  if (train.steps() > 0) {
    count = train.steps() * std::max<uint64_t>(per_step, 1);
  } else {
    // 1e-9: 0.1 epochs of 1000 samples are 100 samples, not 100.00000000000001.
    const double batches =
        train.epochs() * static_cast<double>(sample_count) / train.batch_size();
    if (!(batches > 0 && batches < 1e15)) {
      return absl::InvalidArgumentError(
          absl::StrCat("train.epochs is ", train.epochs(),
                       " and train.steps is 0: one of them must be positive"));
    }
    count = static_cast<uint64_t>(std::ceil(batches - 1e-9));
  }
  return std::max<uint64_t>(count, 1);
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

}  // namespace weir
