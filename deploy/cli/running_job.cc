#include "deploy/cli/running_job.h"

#include "common/base/status.h"
#include "common/io/files.h"
#include "deploy/launcher/workdir.h"
#include "proto/task/security_flags.h"

namespace weir {
namespace {

// Fills in what the run's directory says and nothing else has said.
absl::Status FillFromWorkdir(RunningJobFlags* flags) {
  Files* const files = Files::Real();
  const std::string cluster = JoinPath(flags->workdir, kClusterName);
  const auto text = files->ReadAll(cluster);
  if (!text.ok()) {
    return Invalid(cluster, " cannot be read, so this is no directory of a ",
                   "run: ", text.status().message(),
                   "; give that of `weir train` or `weir run`, or --cluster");
  }
  for (const char* over : {"DONE", "ENDED"}) {
    WEIR_ASSIGN_OR_RETURN(const bool is_over,
                          files->Exists(JoinPath(flags->workdir, over)));
    if (is_over) {
      return Invalid("the job in ", flags->workdir, " is over (", over,
                     "): only a job that runs can be asked");
    }
  }
  flags->sources.tf_config = *text;
  flags->sources.weir_cluster = "";
  const std::string secret = JoinPath(flags->workdir, ".secret");
  WEIR_ASSIGN_OR_RETURN(const bool has_secret, files->Exists(secret));
  if (has_secret && !flags->security.any()) {
    flags->security.secret_file = secret;
  }
  return absl::OkStatus();
}

}  // namespace

void AddRunningJobFlags(CLI::App* app, RunningJobFlags* flags) {
  AddOption(app, "workdir", &flags->workdir,
            "the directory of a run on this host");
  AddOption(app, "--cluster", &flags->sources.flag_cluster,
            "\"ps=host:port,...;worker=host:port,...;chief=host:port\"; "
            "default TF_CONFIG");
  AddSecurityFlags(app, &flags->security);
}

absl::StatusOr<RunningJob> FindRunningJob(const RunningJobFlags& flags) {
  RunningJobFlags found = flags;
  found.sources.task_required = false;  // this program is no task of the job
  if (!found.workdir.empty()) {
    WEIR_RETURN_IF_ERROR(FillFromWorkdir(&found));
  }
  RunningJob job;
  job.chief_address = found.chief;
  if (job.chief_address.empty()) {
    WEIR_ASSIGN_OR_RETURN(job.cluster, ResolveCluster(found.sources));
    job.chief_address = job.cluster.chief_address();
  }
  WEIR_ASSIGN_OR_RETURN(job.security,
                        Security::Create(found.security, PeerRole::kAdmin, 0));
  return job;
}

}  // namespace weir
