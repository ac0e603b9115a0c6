// Options that are given for one role: "worker:spot=true:NoSchedule".
//
// Place: plan.cc asks with the roles that the job has.
//
// Threads: safe.
// Errors: INVALID_ARGUMENT  names the option with its value, and what is wrong.
#ifndef DEPLOY_RENDER_ROLE_OPTIONS_H_
#define DEPLOY_RENDER_ROLE_OPTIONS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/cluster_spec.h"

namespace weir {

// A taint of nodes on which pods may run all the same.
struct Toleration {
  std::string key;
  std::string value;   // "": any
  std::string effect;  // "": every
};

template <typename Value>
using ByRole = std::map<TaskRole, Value>;

// ROLE:KEY[=VALUE][:EFFECT], such as "worker:spot=true:NoSchedule".
absl::StatusOr<ByRole<std::vector<Toleration>>> ParseTolerations(
    const std::vector<std::string>& values);

// ROLE:LABEL=VALUE, such as "worker:pool=gpu".
absl::StatusOr<ByRole<std::map<std::string, std::string>>> ParseNodeSelectors(
    const std::vector<std::string>& values);

// ROLE=AMOUNT, such as "ps=2" and "ps=4Gi".
absl::StatusOr<ByRole<int>> ParseCpus(const std::vector<std::string>& values);
absl::StatusOr<ByRole<int64_t>> ParseMemories(
    const std::vector<std::string>& values);

}  // namespace weir

#endif  // DEPLOY_RENDER_ROLE_OPTIONS_H_
