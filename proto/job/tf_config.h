// From TF_CONFIG, Weir's own environment and flags to one ClusterSpec.
//
// Place: every main that is a task calls ResolveCluster(ClusterSources::
// FromEnv()) with its flags filled in.
//
// What wins: a flag over a WEIR_ variable over TF_CONFIG, each of cluster, task
// type and task index on its own; a cluster replaces the whole cluster.
//
// TF_CONFIG takes every form that TensorFlow, Estimator and Kubeflow's TFJob
// write: roles as lists or as objects {"3": "host:port"}, `sparseCluster`,
// `master` for chief, an evaluator inside or outside the cluster, an index as a
// number or a string, missing and empty roles, unknown keys. Unset, "" and {}
// mean a local run.
//
// WEIR_CLUSTER is "ps=host:1,host:2;worker=host:3;chief=host:4".
//
// Errors: INVALID_ARGUMENT, one line that begins with the source's name and
//   says what is wrong and how to mend it.
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
  // A tool outside the cluster needs none.
  bool task_required = true;

  // TF_CONFIG, WEIR_CLUSTER, WEIR_TASK_TYPE, WEIR_TASK_INDEX. Call in mains,
  // before any thread exists.
  static ClusterSources FromEnv();
};

absl::StatusOr<ClusterSpec> ResolveCluster(const ClusterSources& sources);

// One source's part, before they are put together.
struct ClusterPart {
  std::optional<ClusterSpec::Members> members;
  std::optional<TaskRole> task_role;
  std::optional<int> task_index;
};

// `json` as TF_CONFIG holds it; "" gives an empty part.
absl::StatusOr<ClusterPart> ParseTfConfig(const std::string& json);
// "ps=host:1,host:2;worker=host:3".
absl::StatusOr<ClusterSpec::Members> ParseClusterText(const std::string& text);

}  // namespace weir

#endif  // PROTO_JOB_TF_CONFIG_H_
