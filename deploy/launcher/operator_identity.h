// Who a task is, from what its operator has set: its role, its index, and the
// cluster that it belongs to.
//
// Place: `weir task` and `weir probe` ask. proto/job/tf_config.h reads
// TF_CONFIG and Weir's own variables; this fills in what operators say in other
// ways.
//
//   what      comes from, the first that is there
//   role      WEIR_TASK_TYPE; TF_CONFIG (Volcano, TFJob); the layout with
//             SLURM_PROCID
//   index     WEIR_TASK_INDEX; TF_CONFIG; JOB_COMPLETION_INDEX (Indexed Jobs,
//             JobSet); VC_TASK_INDEX (Volcano); the layout with SLURM_PROCID;
//             the number at the end of the host's name (StatefulSet)
//   cluster   WEIR_CLUSTER; TF_CONFIG; the layout with Slurm's lists of nodes
//
// Threads: safe.
// Errors: INVALID_ARGUMENT  one line: what is missing, or wrong, and what to
//                           set.
#ifndef DEPLOY_LAUNCHER_OPERATOR_IDENTITY_H_
#define DEPLOY_LAUNCHER_OPERATOR_IDENTITY_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "common/job/cluster_spec.h"

namespace weir {

struct OperatorSources {
  // Reads one variable of the environment; "" where it is unset.
  std::function<std::string(const std::string& name)> variable;
  std::string host_name;
  // Which roles the ranks of a Slurm step have, in order:
  // "ps=2,chief=1,worker=4,evaluator=1". "" for none.
  std::string layout;
  int port_base = 2222;  // of the layout's tasks
};

// REQUIRES: sources.variable is set.
absl::StatusOr<ClusterSpec> IdentityFromOperator(
    const OperatorSources& sources);

// The text of WEIR_CLUSTER for the members of `cluster`.
std::string ClusterText(const ClusterSpec& cluster);

}  // namespace weir

#endif  // DEPLOY_LAUNCHER_OPERATOR_IDENTITY_H_
