#include "proto/job/tf_config.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "nlohmann/json.hpp"

namespace weir {
namespace {

using Json = nlohmann::json;

constexpr char kExample[] =
    R"({"cluster": {"ps": ["host:2222"], "worker": ["host:2223"]}, )"
    R"("task": {"type": "worker", "index": 0}})";

// A value for a message: short and on one line. Lists and objects are not
// printed, since a printer that calls itself could run out of stack on a
// hostile one.
std::string Show(const Json& value) {
  if (value.is_array()) {
    return "a list";
  }
  if (value.is_object()) {
    return "an object";
  }
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) {
    text = text.substr(0, 57) + "...";
  }
  return text;
}

absl::StatusOr<TaskRole> RoleOf(absl::string_view name,
                                absl::string_view where) {
  const std::optional<TaskRole> role = ParseRole(name);
  if (!role.has_value()) {
    return Invalid(where, " names the role '", name,
                   "'; the roles are ps, worker, chief and evaluator");
  }
  return *role;
}

// Takes a whole number that counts from 0; no fraction.
absl::StatusOr<int> IndexOf(absl::string_view text, absl::string_view where) {
  int64_t index = 0;
  if (!absl::SimpleAtoi(text, &index)) {
    return Invalid(where, " is '", text,
                   "'; write a whole number that counts from 0");
  }
  if (index < 0 || index >= ClusterSpec::kMaxTasks) {
    return Invalid(where, " is ", index, "; indexes are in [0, ",
                   ClusterSpec::kMaxTasks, ")");
  }
  return static_cast<int>(index);
}

// One role's addresses, from a list or from an object by index.
absl::StatusOr<std::map<int, std::string>> ParseTasks(const std::string& role,
                                                      const Json& value) {
  std::map<int, std::string> tasks;
  const std::string where = absl::StrCat("cluster.", role);
  if (value.is_null()) {
    return tasks;
  }
  if (!value.is_array() && !value.is_object()) {
    return Invalid(where, " is ", Show(value),
                   R"(; write a list ["host:port"] or {"0": "host:port"})");
  }
  // TFJob gives a dynamic cluster as an object, because indexes may be missing
  // in it; a list has all of them in order.
  int next = 0;
  for (const auto& entry : value.items()) {
    int index = next++;
    if (value.is_object()) {
      WEIR_ASSIGN_OR_RETURN(
          index, IndexOf(entry.key(), absl::StrCat("a key of ", where)));
    }
    const Json& address = entry.value();
    if (!address.is_string()) {
      return Invalid(where, "[", index, "] is ", Show(address),
                     R"(; write "host:port")");
    }
    if (!tasks.emplace(index, address.get_ref<const std::string&>()).second) {
      return Invalid(where, " has index ", index, " twice; keep one");
    }
  }
  return tasks;
}

absl::StatusOr<ClusterSpec::Members> ParseMembers(const Json& cluster) {
  if (!cluster.is_object()) {
    return Invalid("cluster is ", Show(cluster),
                   R"(; write {"ps": [...], "worker": [...]})");
  }
  if (cluster.contains("master") && cluster.contains("chief")) {
    return Invalid("cluster has both chief and master, which are one role; ",
                   "keep chief");
  }
  ClusterSpec::Members members;
  for (const auto& entry : cluster.items()) {
    WEIR_ASSIGN_OR_RETURN(const TaskRole role, RoleOf(entry.key(), "cluster"));
    WEIR_ASSIGN_OR_RETURN(members[role],
                          ParseTasks(entry.key(), entry.value()));
  }
  return members;
}

absl::Status ParseTask(const Json& task, ClusterPart* part) {
  if (!task.is_object()) {
    return Invalid("task is ", Show(task),
                   R"(; write {"type": "worker", "index": 0})");
  }
  if (task.contains("type") && !task["type"].is_null()) {
    const Json& type = task["type"];
    if (!type.is_string()) {
      return Invalid("task.type is ", Show(type), R"(; write "worker")");
    }
    WEIR_ASSIGN_OR_RETURN(
        part->task_role,
        RoleOf(type.get_ref<const std::string&>(), "task.type"));
  }
  if (task.contains("index") && !task["index"].is_null()) {
    const Json& index = task["index"];
    // Both 1 and "1" are in use. What is neither becomes the text of a message.
    std::string text = Show(index);
    if (index.is_string()) {
      text = index.get_ref<const std::string&>();
    }
    WEIR_ASSIGN_OR_RETURN(part->task_index, IndexOf(text, "task.index"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ClusterPart> ParseTfConfigObject(const Json& config) {
  ClusterPart part;
  const char* key = "cluster";
  if (!config.contains(key)) {
    key = "sparseCluster";  // TFJob's name for it in a dynamic cluster
  }
  if (config.contains(key) && !config[key].is_null()) {
    WEIR_ASSIGN_OR_RETURN(ClusterSpec::Members members,
                          ParseMembers(config[key]));
    // {} is no cluster, so the task that stands beside it runs locally.
    if (!config[key].empty()) {
      part.members = std::move(members);
    }
  }
  if (config.contains("task") && !config["task"].is_null()) {
    WEIR_RETURN_IF_ERROR(ParseTask(config["task"], &part));
  }
  return part;
}

std::string Env(const char* name) {
  // Read once at start, before any thread exists.
  const char* value = std::getenv(name);  // NOLINT
  if (value == nullptr) {
    return "";
  }
  return value;
}

// Lays what a WEIR_ variable or a flag says over `part`.
absl::Status Override(const std::string& cluster,
                      const std::string& cluster_name, const std::string& type,
                      const std::string& type_name, const std::string& index,
                      const std::string& index_name, ClusterPart* part) {
  if (!cluster.empty()) {
    const auto members = ParseClusterText(cluster);
    if (!members.ok()) {
      return Annotate(members.status(), cluster_name);
    }
    part->members = *members;
  }
  if (!type.empty()) {
    WEIR_ASSIGN_OR_RETURN(part->task_role, RoleOf(type, type_name));
    // There is one chief and one evaluator. The index that a weaker source gave
    // belongs to the role that was replaced.
    if (index.empty() && (*part->task_role == TaskRole::kChief ||
                          *part->task_role == TaskRole::kEvaluator)) {
      part->task_index = 0;
    }
  }
  if (!index.empty()) {
    WEIR_ASSIGN_OR_RETURN(part->task_index, IndexOf(index, index_name));
  }
  return absl::OkStatus();
}

// Names and addresses are of any bytes, and the message goes to logs and
// terminals: what is not printed as itself becomes a question mark.
absl::Status InOneLine(const absl::Status& status) {
  std::string message(status.message());
  for (char& c : message) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) {
      c = '?';
    }
  }
  return absl::Status(status.code(), message);
}

}  // namespace

ClusterSources ClusterSources::FromEnv() {
  ClusterSources sources;
  sources.tf_config = Env("TF_CONFIG");
  sources.weir_cluster = Env("WEIR_CLUSTER");
  sources.weir_task_type = Env("WEIR_TASK_TYPE");
  sources.weir_task_index = Env("WEIR_TASK_INDEX");
  return sources;
}

absl::StatusOr<ClusterPart> ParseTfConfig(const std::string& json) {
  if (absl::StripAsciiWhitespace(json).empty()) {
    return ClusterPart();
  }
  // nlohmann's parser keeps a stack of its own, so that a deep nesting cannot
  // overflow this thread's.
  const Json config = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (config.is_discarded()) {
    return Invalid("TF_CONFIG is not JSON (", json.size(), " bytes); write ",
                   kExample);
  }
  if (!config.is_object()) {
    return Invalid("TF_CONFIG is ", Show(config), ", not an object; write ",
                   kExample);
  }
  absl::StatusOr<ClusterPart> part = ParseTfConfigObject(config);
  if (!part.ok()) {
    return Annotate(part.status(), "TF_CONFIG");
  }
  return part;
}

absl::StatusOr<ClusterSpec::Members> ParseClusterText(const std::string& text) {
  ClusterSpec::Members members;
  for (const absl::string_view part :
       absl::StrSplit(text, ';', absl::SkipWhitespace())) {
    const std::vector<absl::string_view> sides =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (sides.size() != 2) {
      return Invalid("'", absl::StripAsciiWhitespace(part),
                     "' is not role=host:port,host:port");
    }
    WEIR_ASSIGN_OR_RETURN(
        const TaskRole role,
        RoleOf(absl::StripAsciiWhitespace(sides[0]), "the cluster"));
    if (members.contains(role)) {
      return Invalid("the role ", RoleName(role), " is given twice; keep one");
    }
    int index = 0;
    for (const absl::string_view address :
         absl::StrSplit(sides[1], ',', absl::SkipWhitespace())) {
      members[role][index++] = std::string(absl::StripAsciiWhitespace(address));
    }
  }
  return members;
}

namespace {

absl::StatusOr<ClusterSpec> Resolve(const ClusterSources& sources) {
  WEIR_ASSIGN_OR_RETURN(ClusterPart part, ParseTfConfig(sources.tf_config));
  // Messages about the cluster name the source that it came from.
  std::string source = "TF_CONFIG";
  if (!sources.weir_cluster.empty()) {
    source = "WEIR_CLUSTER";
  }
  if (!sources.flag_cluster.empty()) {
    source = "--cluster";
  }
  // In this order: what is laid over last wins.
  WEIR_RETURN_IF_ERROR(Override(
      sources.weir_cluster, "WEIR_CLUSTER", sources.weir_task_type,
      "WEIR_TASK_TYPE", sources.weir_task_index, "WEIR_TASK_INDEX", &part));
  WEIR_RETURN_IF_ERROR(
      Override(sources.flag_cluster, "--cluster", sources.flag_task_type,
               "--task_type", sources.flag_task_index, "--task_index", &part));
  if (!part.members.has_value()) {
    // A task in TF_CONFIG without a cluster is a local run, as in TensorFlow. A
    // task that was asked for by hand means that the cluster was forgotten.
    if (!sources.weir_task_type.empty() || !sources.flag_task_type.empty()) {
      return Invalid(
          sources.flag_task_type.empty() ? "WEIR_TASK_TYPE" : "--task_type",
          " is set, but there is no cluster; set WEIR_CLUSTER or ",
          "--cluster, or leave out the task for a local run");
    }
    return ClusterSpec();
  }
  std::optional<TaskId> task;
  if (part.task_role.has_value() && part.task_index.has_value()) {
    task = TaskId{*part.task_role, *part.task_index};
  } else if (sources.task_required || part.task_role.has_value()) {
    std::pair<const char*, const char*> missing = {"index", "WEIR_TASK_INDEX"};
    if (!part.task_role.has_value()) {
      missing = {"type", "WEIR_TASK_TYPE"};
    }
    return Invalid(source, ": there is a cluster but no task ", missing.first,
                   R"(; add "task": {"type": "worker", "index": 0} to )",
                   "TF_CONFIG, or set ", missing.second);
  }
  absl::StatusOr<ClusterSpec> spec = ClusterSpec::Create(*part.members, task);
  if (!spec.ok()) {
    return Annotate(spec.status(), source);
  }
  return spec;
}

}  // namespace

absl::StatusOr<ClusterSpec> ResolveCluster(const ClusterSources& sources) {
  absl::StatusOr<ClusterSpec> spec = Resolve(sources);
  if (!spec.ok()) {
    return InOneLine(spec.status());
  }
  return spec;
}

}  // namespace weir
