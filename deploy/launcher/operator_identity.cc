#include "deploy/launcher/operator_identity.h"

#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "deploy/launcher/slurm_step.h"
#include "proto/job/tf_config.h"

namespace weir {
namespace {

using Layout = std::vector<std::pair<TaskRole, int>>;

absl::StatusOr<Layout> ParseLayout(const std::string& text) {
  Layout layout;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> words = absl::StrSplit(part, '=');
    const std::optional<TaskRole> role = ParseRole(words.front());
    int count = 0;
    if (words.size() != 2 || !role.has_value() ||
        !absl::SimpleAtoi(words.back(), &count) || count < 1 ||
        count > ClusterSpec::kMaxTasks) {
      return Invalid("--layout '", text, "': '", part,
                     "' is no role with its number of tasks; write "
                     "ps=2,chief=1,worker=4");
    }
    layout.emplace_back(*role, count);
  }
  return layout;
}

absl::Status Missing(absl::string_view variable) {
  return Invalid("--layout is for the tasks of a Slurm step, and ", variable,
                 " is not set; start this command by srun");
}

absl::StatusOr<std::string> SlurmVariable(const OperatorSources& sources,
                                          const std::string& name) {
  std::string value = sources.variable(name);
  if (value.empty()) {
    return Missing(name);
  }
  return value;
}

// Fills what the layout and Slurm's variables say into those of `found` that
// nothing else has said.
absl::Status FillFromSlurm(const OperatorSources& sources,
                           ClusterSources* found) {
  WEIR_ASSIGN_OR_RETURN(const Layout layout, ParseLayout(sources.layout));
  WEIR_ASSIGN_OR_RETURN(const std::string proc,
                        SlurmVariable(sources, "SLURM_PROCID"));
  WEIR_ASSIGN_OR_RETURN(const std::string nodes,
                        SlurmVariable(sources, "SLURM_STEP_NODELIST"));
  WEIR_ASSIGN_OR_RETURN(const std::string counts,
                        SlurmVariable(sources, "SLURM_STEP_TASKS_PER_NODE"));
  WEIR_ASSIGN_OR_RETURN(const std::vector<std::string> addresses,
                        SlurmAddresses(nodes, counts, sources.port_base));
  size_t rank = 0;
  size_t tasks = 0;
  if (!absl::SimpleAtoi(proc, &rank)) {
    return Invalid("SLURM_PROCID is '", proc, "'; Slurm writes a number");
  }
  std::vector<std::string> members;
  for (const auto& [role, count] : layout) {
    const size_t begin = tasks;
    tasks += static_cast<size_t>(count);
    if (tasks > addresses.size()) {
      break;
    }
    if (rank >= begin && rank < tasks && found->weir_task_type.empty()) {
      found->weir_task_type = RoleName(role);
      found->weir_task_index = absl::StrCat(rank - begin);
    }
    if (role != TaskRole::kEvaluator) {
      members.push_back(absl::StrCat(
          RoleName(role), "=",
          absl::StrJoin(addresses.begin() + static_cast<ptrdiff_t>(begin),
                        addresses.begin() + static_cast<ptrdiff_t>(tasks),
                        ",")));
    }
  }
  if (tasks != addresses.size()) {
    return Invalid("--layout '", sources.layout, "' has another number of ",
                   "tasks than the Slurm step, which has ", addresses.size(),
                   "; give srun --ntasks the sum of the layout");
  }
  if (found->weir_cluster.empty()) {
    found->weir_cluster = absl::StrJoin(members, ";");
  }
  return absl::OkStatus();
}

// The number behind the last '-' of a host's name, as a StatefulSet and an
// Indexed Job give it; "" where there is none.
std::string Ordinal(absl::string_view host) {
  host = host.substr(0, host.find('.'));
  const size_t dash = host.rfind('-');
  if (dash == absl::string_view::npos) {
    return "";
  }
  const absl::string_view number = host.substr(dash + 1);
  int value = 0;
  if (number.empty() || !absl::ascii_isdigit(number.front()) ||
      !absl::SimpleAtoi(number, &value)) {
    return "";
  }
  return std::string(number);
}

std::string IndexFromOperator(const OperatorSources& sources) {
  for (const char* name : {"JOB_COMPLETION_INDEX", "VC_TASK_INDEX"}) {
    std::string index = sources.variable(name);
    if (!index.empty()) {
      return index;
    }
  }
  return Ordinal(sources.host_name);
}

}  // namespace

absl::StatusOr<ClusterSpec> IdentityFromOperator(
    const OperatorSources& sources) {
  ClusterSources found;
  found.tf_config = sources.variable("TF_CONFIG");
  found.weir_cluster = sources.variable("WEIR_CLUSTER");
  found.weir_task_type = sources.variable("WEIR_TASK_TYPE");
  found.weir_task_index = sources.variable("WEIR_TASK_INDEX");
  WEIR_ASSIGN_OR_RETURN(const ClusterPart part, ParseTfConfig(found.tf_config));
  if (!sources.layout.empty()) {
    WEIR_RETURN_IF_ERROR(FillFromSlurm(sources, &found));
  }
  if (found.weir_task_type.empty() && !part.task_role.has_value()) {
    return absl::InvalidArgumentError(
        "nothing says which role this task has: set WEIR_TASK_TYPE to ps, "
        "chief, worker or evaluator, or TF_CONFIG; in a Slurm step give "
        "--layout");
  }
  const std::optional<TaskRole> role = found.weir_task_type.empty()
                                           ? part.task_role
                                           : ParseRole(found.weir_task_type);
  if (found.weir_task_index.empty() && !part.task_index.has_value()) {
    // There is one chief and one evaluator, whatever their hosts are called.
    const bool is_only_one =
        role == TaskRole::kChief || role == TaskRole::kEvaluator;
    found.weir_task_index = is_only_one ? "0" : IndexFromOperator(sources);
  }
  if (found.weir_task_index.empty() && !part.task_index.has_value()) {
    return absl::InvalidArgumentError(
        "nothing says which index this task has: set WEIR_TASK_INDEX, or run "
        "it where JOB_COMPLETION_INDEX, VC_TASK_INDEX or the end of the host's "
        "name says it");
  }
  return ResolveCluster(found);
}

std::string ClusterText(const ClusterSpec& cluster) {
  std::vector<std::string> roles;
  const auto add = [&roles](TaskRole role,
                            const std::vector<std::string>& addresses) {
    if (!addresses.empty()) {
      roles.push_back(
          absl::StrCat(RoleName(role), "=", absl::StrJoin(addresses, ",")));
    }
  };
  add(TaskRole::kPs, cluster.ps_addresses());
  std::vector<std::string> workers;
  for (const auto& [index, address] : cluster.workers()) {
    workers.push_back(address);
  }
  add(TaskRole::kWorker, workers);
  if (cluster.has_chief()) {
    add(TaskRole::kChief, {cluster.chief_address()});
  }
  return absl::StrJoin(roles, ";");
}

}  // namespace weir
