// How a command finds a running job and proves who asks.
//
// A run of this host keeps both in its directory. Elsewhere --chief, --cluster
// or TF_CONFIG says where the tasks are, and the flags and variables of
// security what to show them.
#ifndef DEPLOY_CLI_RUNNING_JOB_H_
#define DEPLOY_CLI_RUNNING_JOB_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/flags/flags.h"
#include "proto/job/tf_config.h"
#include "proto/security/security.h"

namespace weir {

struct RunningJobFlags {
  std::string workdir;  // of a run on this host; "": the others say it
  std::string chief;    // its address, where nothing else is asked
  ClusterSources sources = ClusterSources::FromEnv();
  Security::Options security = Security::Options::FromEnvironment();
};

struct RunningJob {
  ClusterSpec cluster;  // empty where the flags name the chief alone
  std::string chief_address;
  std::shared_ptr<const Security> security;  // an admin's
};

// Adds `workdir`, --cluster and the flags of security.
void AddRunningJobFlags(CLI::App* app, RunningJobFlags* flags);

// INVALID_ARGUMENT: the directory is none of a run, or its job is over.
absl::StatusOr<RunningJob> FindRunningJob(const RunningJobFlags& flags);

}  // namespace weir

#endif  // DEPLOY_CLI_RUNNING_JOB_H_
