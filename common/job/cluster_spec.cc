#include "common/job/cluster_spec.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/io/sha256.h"

namespace weir {
namespace {

constexpr TaskRole kRoles[] = {TaskRole::kPs, TaskRole::kWorker,
                               TaskRole::kChief, TaskRole::kEvaluator};

// Eight bytes of SHA-256; never 0, which means a partial view.
uint64_t Fingerprint(const std::vector<std::string>& addresses) {
  Sha256 sha;
  const std::string text =
      absl::StrCat("weir-cluster-1\n", absl::StrJoin(addresses, "\n"));
  sha.Update(text.data(), text.size());
  uint64_t fingerprint = 0;
  const auto digest = sha.Finish();
  for (int i = 0; i < 8; ++i) {
    fingerprint = fingerprint << 8 | digest[i];
  }
  return std::max<uint64_t>(fingerprint, 1);
}

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "[::1]" ||
         absl::StartsWith(host, "127.");
}

}  // namespace

const char* RoleName(TaskRole role) {
  switch (role) {
    case TaskRole::kPs:
      return "ps";
    case TaskRole::kWorker:
      return "worker";
    case TaskRole::kChief:
      return "chief";
    case TaskRole::kEvaluator:
      return "evaluator";
  }
  return "";
}

std::optional<TaskRole> ParseRole(absl::string_view name) {
  for (const TaskRole role : kRoles) {
    if (name == RoleName(role)) {
      return role;
    }
  }
  if (name == "master") {
    return TaskRole::kChief;
  }
  return std::nullopt;
}

std::string TaskId::ToString() const {
  return absl::StrCat(RoleName(role), "/", index);
}

std::string HostPort::ToString() const { return absl::StrCat(host, ":", port); }

absl::StatusOr<HostPort> ParseHostPort(absl::string_view address) {
  // From the end: the host may be an IPv6 address in brackets.
  const size_t colon = address.rfind(':');
  const bool bracketed = absl::StartsWith(address, "[");
  if (colon == absl::string_view::npos ||
      (bracketed && !absl::EndsWith(address.substr(0, colon), "]"))) {
    return Invalid("'", address, "' has no port; write host:port");
  }
  HostPort parsed;
  // I3: host names do not depend on case, and addresses are compared as text.
  parsed.host = absl::AsciiStrToLower(address.substr(0, colon));
  if (parsed.host.empty()) {
    return Invalid("'", address, "' has no host; write host:port");
  }
  const bool legal = std::all_of(
      parsed.host.begin(), parsed.host.end(), [bracketed](unsigned char c) {
        return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_' ||
               (bracketed && (c == ':' || c == '[' || c == ']' || c == '%'));
      });
  if (!legal) {
    const char* remedy = "; an IPv6 host needs brackets, [::1]:2222";
    if (absl::StrContains(address, "://")) {
      remedy = "; leave out the scheme before ://";
    }
    return Invalid("'", address, "' is not host:port", remedy);
  }
  const absl::string_view port = address.substr(colon + 1);
  if (port.empty() ||
      !std::all_of(port.begin(), port.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(port, &parsed.port) || parsed.port < 1 ||
      parsed.port > 65535) {
    return Invalid("'", address, "' has port '", port,
                   "'; a port is a number in [1, 65535]");
  }
  return parsed;
}

absl::StatusOr<ClusterSpec> ClusterSpec::Create(const Members& members,
                                                std::optional<TaskId> task) {
  ClusterSpec spec;
  spec.task_ = task;
  for (const auto& [role, tasks] : members) {
    if (role == TaskRole::kEvaluator && tasks.size() > 1) {
      return Invalid("the cluster lists ", tasks.size(),
                     " evaluators; keep one");
    }
    for (const auto& [index, address] : tasks) {
      const std::string name = TaskId{role, index}.ToString();
      if (index < 0 || index >= kMaxTasks) {
        return Invalid(name, " is out of range; an index is in [0, ", kMaxTasks,
                       ")");
      }
      const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
      if (!parsed.ok()) {
        return Annotate(parsed.status(), absl::StrCat("address of ", name));
      }
      if (role != TaskRole::kEvaluator) {  // I2
        spec.members_[role][index] = parsed->ToString();
      }
    }
  }
  // A ps of a dynamic TFJob gets a list with its own address alone, whatever
  // its index. The address gets this index, and the view is a partial one (I1).
  if (task.has_value() && task->role == TaskRole::kPs && task->index > 0 &&
      spec.Count(TaskRole::kPs) == 1 &&
      spec.Find(TaskRole::kPs, 0) != nullptr) {
    std::map<int, std::string>& ps = spec.members_[TaskRole::kPs];
    const std::string own = ps[0];
    ps = {{task->index, own}};
  }
  WEIR_RETURN_IF_ERROR(spec.CheckMembers());
  WEIR_RETURN_IF_ERROR(spec.CheckTask());
  if (spec.full_view_) {
    spec.fingerprint_ = Fingerprint(spec.ps_addresses());
  }
  return spec;
}

absl::Status ClusterSpec::CheckMembers() const {
  // I3. Two tasks at one address would answer for one another.
  std::map<std::string, std::string> owners;
  for (const auto& [role, tasks] : members_) {
    for (const auto& [index, address] : tasks) {
      const std::string name = TaskId{role, index}.ToString();
      const auto [it, fresh] = owners.emplace(address, name);
      if (!fresh) {
        return Invalid("address ", address, " is given to both ", it->second,
                       " and ", name, "; every task needs its own");
      }
    }
  }
  if (Count(TaskRole::kChief) > 1) {
    return Invalid("the cluster lists ", Count(TaskRole::kChief),
                   " chiefs; keep one");
  }
  if (has_chief() && Find(TaskRole::kChief, 0) == nullptr) {
    return Invalid("the chief has index ",
                   Tasks(TaskRole::kChief).begin()->first, "; give it index 0");
  }
  return absl::OkStatus();
}

absl::Status ClusterSpec::CheckTask() {
  // A tool outside the cluster must see all of it, as the chief must.
  TaskRole role = TaskRole::kChief;
  std::string name;
  if (task_.has_value()) {
    role = task_->role;
    name = task_->ToString();
  }
  if (task_.has_value() && (task_->index < 0 || task_->index >= kMaxTasks)) {
    return Invalid("task index ", task_->index, " is not in [0, ", kMaxTasks,
                   ")");
  }
  if (task_.has_value() && role != TaskRole::kEvaluator &&
      own_address().empty()) {
    if (Count(role) == 0) {
      return Invalid("this task is ", name, ", but the cluster lists no ",
                     RoleName(role), "; add its address or set WEIR_CLUSTER");
    }
    std::vector<int> known;
    for (const auto& [index, address] : Tasks(role)) {
      known.push_back(index);
    }
    return Invalid("this task is ", name, ", but the cluster lists ",
                   RoleName(role), " ", absl::StrJoin(known, ", "),
                   " only; correct the index or add its address");
  }
  // I1: indexes are distinct and not negative, so as many as the largest + 1
  // means that there is no gap.
  int largest = -1;
  if (ps_count() > 0) {
    largest = Tasks(TaskRole::kPs).rbegin()->first;
  }
  if (largest + 1 == ps_count() && largest >= 0) {
    full_view_ = true;
  } else if (!(role == TaskRole::kPs && ps_count() == 1) &&
             !(role == TaskRole::kEvaluator && largest < 0)) {
    int gap = 0;
    while (Find(TaskRole::kPs, gap) != nullptr) {
      ++gap;
    }
    if (largest < 0) {
      return Invalid("the cluster lists no ps; add at least one ",
                     "or set WEIR_CLUSTER");
    }
    return Invalid("the cluster lists ps ", largest, " but no ps ", gap,
                   "; number them from 0 without a gap");
  }
  if (role == TaskRole::kWorker && chief_address().empty()) {
    return Invalid("this task is ", name, ", and the cluster lists neither a ",
                   "chief nor worker 0, who would host it; add one of them or ",
                   "set WEIR_CLUSTER");
  }
  return absl::OkStatus();
}

const std::map<int, std::string>& ClusterSpec::Tasks(TaskRole role) const {
  static const auto* const none = new std::map<int, std::string>();
  const auto tasks = members_.find(role);
  return tasks == members_.end() ? *none : tasks->second;
}

const std::string* ClusterSpec::Find(TaskRole role, int index) const {
  const auto it = Tasks(role).find(index);
  return it == Tasks(role).end() ? nullptr : &it->second;
}

std::vector<std::string> ClusterSpec::ps_addresses() const {
  std::vector<std::string> addresses;
  for (const auto& [index, address] : Tasks(TaskRole::kPs)) {
    addresses.push_back(address);
  }
  return addresses;
}

int ClusterSpec::worker_count() const {
  if (workers().empty()) {
    return 0;
  }
  return workers().rbegin()->first + 1;
}

std::string ClusterSpec::chief_address() const {
  TaskRole host = TaskRole::kWorker;  // I4
  if (has_chief()) {
    host = TaskRole::kChief;
  }
  const std::string* address = Find(host, 0);
  return address == nullptr ? "" : *address;
}

bool ClusterSpec::hosts_chief() const {
  if (!task_.has_value()) {
    return false;
  }
  return task_->role == TaskRole::kChief ||  // I4
         (!has_chief() && *task_ == TaskId{TaskRole::kWorker, 0});
}

std::string ClusterSpec::own_address() const {
  if (!task_.has_value()) {
    return "";
  }
  const std::string* address = Find(task_->role, task_->index);
  return address == nullptr ? "" : *address;
}

std::string ClusterSpec::bind_address() const {
  const absl::StatusOr<HostPort> own = ParseHostPort(own_address());
  if (!own.ok()) {
    return "";
  }
  if (IsLoopback(own->host)) {
    return own->ToString();
  }
  // Not at the own name: in a pod it may be the name of a service, whose
  // address is no interface of this host.
  if (own->host[0] == '[') {
    return absl::StrCat("[::]:", own->port);
  }
  return absl::StrCat("0.0.0.0:", own->port);
}

std::string ClusterSpec::ToString() const {
  if (local()) {
    return "local: no cluster is given, everything runs in this process\n";
  }
  std::string text;
  if (task_.has_value()) {
    absl::StrAppend(&text, "task ", task_->ToString(), "\n");
  }
  for (const auto& [role, tasks] : members_) {
    for (const auto& [index, address] : tasks) {
      absl::StrAppend(&text, RoleName(role), "/", index, " ", address, "\n");
    }
  }
  if (!has_chief() && !chief_address().empty()) {
    absl::StrAppend(&text, "worker/0 hosts the chief\n");
  }
  if (full_view_) {
    absl::StrAppend(&text, "fingerprint ",
                    absl::Hex(fingerprint_, absl::kZeroPad16), "\n");
  } else {
    absl::StrAppend(&text,
                    "fingerprint none: this task does not see every ps\n");
  }
  return text;
}

}  // namespace weir
