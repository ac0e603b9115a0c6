// Where the tasks of a Slurm step run, as Slurm's own variables say it.
//
// Place: `weir task` asks (operator_identity.h); no command of Slurm is called,
// since there is none in a container.
// Threads: functions without state, safe.
// Errors: INVALID_ARGUMENT  names the variable and what is wrong with it.
#ifndef DEPLOY_LAUNCHER_SLURM_STEP_H_
#define DEPLOY_LAUNCHER_SLURM_STEP_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

// The hosts of a list such as "n[0-3,7],gpu[01-02]-a", in its order. At most
// kSlurmHostsMax.
inline constexpr int kSlurmHostsMax = 4096;
absl::StatusOr<std::vector<std::string>> ExpandNodeList(
    const std::string& list);

// How many tasks each node has, of a text such as "2,1(x3)", in the order of
// the nodes.
absl::StatusOr<std::vector<int>> ParseTasksPerNode(const std::string& text);

// The largest port of a node's first task: those of the others come after it.
inline constexpr int kSlurmPortBaseMax = 61000;

// The addresses of a step's tasks by rank. Ranks are dealt node by node
// (srun --distribution=block). A task listens at `port_base` and its number on
// its node, so that tasks which share a node have ports of their own.
absl::StatusOr<std::vector<std::string>> SlurmAddresses(
    const std::string& node_list, const std::string& tasks_per_node,
    int port_base);

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_SLURM_STEP_H_
