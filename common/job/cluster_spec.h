// Who is in the cluster, where, and which of them this process is.
//
// Place: proto/job/tf_config makes it of TF_CONFIG, the environment and the
// flags; every main starts from it.
//
// Terms
//   task       (role, index), written "worker/0".
//   full view  the task sees every ps in order. A ps that was told its own
//              address only has a partial view, and so has an evaluator that
//              was told nothing.
//
// Invariants
//   I1. The order of the ps is the order of the shards, from 0 without a gap,
//       whenever the view is full.
//   I2. The evaluator is never a member: nobody waits for it or calls it.
//   I3. No address occurs twice. Hosts are in lower case.
//   I4. Without a chief, worker 0 hosts it, at its own address.
// Threads: immutable, safe.
// Errors: INVALID_ARGUMENT  one line, which says what is wrong and how to
//         mend it.
#ifndef COMMON_JOB_CLUSTER_SPEC_H_
#define COMMON_JOB_CLUSTER_SPEC_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weir {

enum class TaskRole : int { kPs = 0, kWorker = 1, kChief = 2, kEvaluator = 3 };

// "ps", "worker", "chief", "evaluator".
const char* RoleName(TaskRole role);
// Takes "master" for chief. nullopt for an unknown name.
std::optional<TaskRole> ParseRole(absl::string_view name);

struct TaskId {
  TaskRole role = TaskRole::kWorker;
  int index = 0;
  bool operator==(const TaskId&) const = default;
  std::string ToString() const;  // "worker/0"
};

// A "host:port" in parts. IPv6 hosts are written in brackets.
struct HostPort {
  std::string host;  // lower case, brackets kept
  int port = 0;
  std::string ToString() const;
};

// Errors: the message names the address and what is missing or out of range.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address);

class ClusterSpec {
 public:
  // The addresses of each role by index. A list of addresses has indexes from
  // 0.
  using Members = std::map<TaskRole, std::map<int, std::string>>;

  static constexpr int kMaxTasks = 4096;  // per role; Layout::kMaxShards

  // The local cluster: no members, no addresses, one process.
  ClusterSpec() = default;

  // `task` is unset for a tool that looks at the cluster from outside.
  static absl::StatusOr<ClusterSpec> Create(const Members& members,
                                            std::optional<TaskId> task);

  bool local() const { return members_.empty() && !task_.has_value(); }
  const std::optional<TaskId>& task() const { return task_; }
  bool full_view() const { return full_view_; }

  // In the order of the shards. With a partial view: the own address only.
  std::vector<std::string> ps_addresses() const;
  int ps_count() const { return Count(TaskRole::kPs); }
  // The workers that this task was told of, by index.
  const std::map<int, std::string>& workers() const {
    return Tasks(TaskRole::kWorker);
  }
  // 1 + the largest rank known.
  int worker_count() const;
  bool has_chief() const { return Count(TaskRole::kChief) > 0; }
  // The address of the chief, or of worker 0 that hosts it. Empty if this task
  // was told of neither (a partial view, or the evaluator's).
  std::string chief_address() const;
  // True if this process runs the chief's service.
  bool hosts_chief() const;

  // Empty for the evaluator and without a task.
  std::string own_address() const;
  // The address to listen at: every interface, unless the own host is a
  // loopback one.
  std::string bind_address() const;

  // A hash of the ps addresses in order: equal for two tasks that see the same
  // shards. 0 with a partial view, which adopts the chief's, and in a local
  // run.
  uint64_t fingerprint() const { return fingerprint_; }

  // The task, the members by role and index, who hosts the chief, and the
  // fingerprint. Every form of one cluster gives the same lines.
  std::string ToString() const;

 private:
  // The addresses of a role by index; empty without a task of that role.
  const std::map<int, std::string>& Tasks(TaskRole role) const;
  int Count(TaskRole role) const {
    return static_cast<int>(Tasks(role).size());
  }
  const std::string* Find(TaskRole role, int index) const;
  absl::Status CheckMembers() const;
  absl::Status CheckTask();

  Members members_;  // without the evaluator, without empty roles
  std::optional<TaskId> task_;
  bool full_view_ = false;
  uint64_t fingerprint_ = 0;
};

}  // namespace weir

#endif  // COMMON_JOB_CLUSTER_SPEC_H_
