// The flags that `weir train` and `weir run` share.
#ifndef DEPLOY_CLI_CLUSTER_FLAGS_H_
#define DEPLOY_CLI_CLUSTER_FLAGS_H_

#include "common/flags/flags.h"
#include "deploy/launcher/local_cluster.h"

namespace weir {

// Also sets the folder of Weir's programs (bin_dir.h).
// REQUIRES: no other thread reads or changes the environment.
void AddClusterFlags(CLI::App* app, ClusterOptions* options, int* max_restarts);

}  // namespace weir

#endif  // DEPLOY_CLI_CLUSTER_FLAGS_H_
