// Makes one ClusterSpec of TF_CONFIG, Weir's own environment and the flags.
//
// Place: every main that is a task fills its flags into
// ClusterSources::FromEnv() and calls ResolveCluster.
//
// What wins: a flag wins over a WEIR_ variable, and that over TF_CONFIG. This
// holds for the cluster, the task type and the task index, each on its own. A
// cluster replaces the other one as a whole.
//
// TF_CONFIG may have every form that TensorFlow, Estimator and Kubeflow's TFJob
// write: roles as lists or as objects {"3": "host:port"}, `sparseCluster`,
// `master` for chief, an evaluator inside or outside the cluster, an index as a
// number or a string, missing and empty roles, unknown keys. Unset, "" and {}
// mean a local run.
//
// WEIR_CLUSTER is "ps=host:1,host:2;worker=host:3;chief=host:4".
//
// Threads: safe, but for FromEnv.
// Errors: INVALID_ARGUMENT  one line, which begins with the name of the source
//                           and says what is wrong and how to mend it.
#ifndef PROTO_JOB_TF_CONFIG_H_
#define PROTO_JOB_TF_CONFIG_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/job/cluster_spec.h"

namespace weir {

struct ClusterSources {
  std::string tf_config = "";
  std::string weir_cluster = "";
  std::string weir_task_type = "";
  std::string weir_task_index = "";
  std::string flag_cluster = "";
  std::string flag_task_type = "";
  std::string flag_task_index = "";
  // False for a tool that looks at the cluster from outside.
  bool task_required = true;

  // Reads TF_CONFIG, WEIR_CLUSTER, WEIR_TASK_TYPE and WEIR_TASK_INDEX. Call it
  // in mains only, before any thread exists.
  static ClusterSources FromEnv();
};

absl::StatusOr<ClusterSpec> ResolveCluster(const ClusterSources& sources);

// The cluster and the task as one source says them.
struct ClusterPart {
  std::optional<ClusterSpec::Members> members;
  std::optional<TaskRole> task_role;
  std::optional<int> task_index;
};

// Reads the JSON of TF_CONFIG; "" gives an empty part.
absl::StatusOr<ClusterPart> ParseTfConfig(const std::string& json);
// Reads the form of WEIR_CLUSTER, "ps=host:1,host:2;worker=host:3".
absl::StatusOr<ClusterSpec::Members> ParseClusterText(const std::string& text);

}  // namespace weir

#endif  // PROTO_JOB_TF_CONFIG_H_
