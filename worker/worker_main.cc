// weir_worker: one worker, and the chief when the cluster has none of its own.
//
//   TF_CONFIG=... weir_worker --job FILE --workdir DIR [--data_dir DIR]
//
// The exit codes are those of common/base/exit_code.h. The last line of the log
// says why the process ended.
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cc/job/chief_link.h"
#include "client/cc/transport/shm_transport.h"
#include "common/base/identity.h"
#include "common/base/logging.h"
#include "common/base/status.h"
#include "common/flags/flags.h"
#include "common/io/files.h"
#include "common/objects/any_store.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/job/job_spec_text.h"
#include "proto/task/admin_file.h"
#include "proto/task/job_flags.h"
#include "proto/task/task_main.h"
#include "server/chief/chief_flags.h"
#include "server/chief/chief_pages.h"
#include "worker/train/worker_task.h"

namespace weir {
namespace {

// How long a worker that failed waits for the hosted chief to end the job. The
// chief knows the better reason, but may learn it a little later.
constexpr std::chrono::seconds kFailedJobWait{15};

struct Flags {
  std::string job;
  std::vector<std::string> sets;
  std::string data_dir = ".";
  std::string device = "auto";
  std::string device_plugin;
  std::string transport = "auto";
  std::string checksum = "auto";
  int channels_per_peer = 0;
  ChiefFlags chief;  // where this worker hosts it, but for workdir
};

// How the job ended, where this process hosts its chief. A chief whose own
// worker failed waits for a successor, which only a new process can bring.
absl::Status JobEnd(ChiefServer* chief, const absl::Status& worker) {
  if (worker.ok()) {
    return chief->Wait();
  }
  const std::optional<absl::Status> job = chief->WaitFor(kFailedJobWait);
  if (job.has_value() && !job->ok()) {
    return *job;
  }
  return worker;
}

// What the admin port shows; `chief` is null where this worker hosts none.
void AddPages(const WorkerTask* worker, ChiefServer* chief,
              AdminServer* admin) {
  if (admin == nullptr) {
    return;
  }
  admin->AddMetrics([worker](MetricPage* page) { worker->AddMetrics(page); });
  if (chief != nullptr) {
    AddChiefPages(chief->runner(), admin);
  }
}

absl::Status RunWorker(const Flags& flags, const Task& task) {
  const ClusterSpec& cluster = task.cluster;
  WEIR_ASSIGN_OR_RETURN(const JobSpec spec, LoadJobSpec(flags.job, flags.sets));
  WEIR_ASSIGN_OR_RETURN(const TransportChoice choice,
                        ParseTransportChoice(flags.transport));
  GrpcTransportOptions grpc;
  grpc.own_connections = flags.channels_per_peer > 1;
  WEIR_ASSIGN_OR_RETURN(grpc.checksum, ParseChecksumChoice(flags.checksum));
  grpc.security = task.security;
  const std::unique_ptr<Transport> transport = MakeTransport(choice, grpc);
  WorkerTask::Options options;
  options.spec = spec;
  options.index = cluster.task()->index;
  options.process = RandomId();
  options.host = HostName();
  options.chief = MakeGrpcChiefLink(cluster.chief_address(), task.security);
  options.cluster_fingerprint = cluster.fingerprint();
  options.data_dir = flags.data_dir;
  options.backend.device = flags.device;
  options.backend.plugin_path = flags.device_plugin;
  options.backend.auto_index = options.index;
  options.transport = transport.get();
  options.channels_per_peer = flags.channels_per_peer;
  options.host_meter = task.host;
  // Without a working directory there is no DONE to look at.
  const std::string place =
      PlaceOfRun(flags.chief.workdir, flags.chief.checkpoints);
  if (!place.empty()) {
    options.job_is_done = [place, text = CanonicalJobSpecText(spec)] {
      return JobIsDone(AnyStore(), place, text);
    };
  }
  WEIR_ASSIGN_OR_RETURN(const auto worker,
                        WorkerTask::Create(std::move(options)));
  // After the task is made, so that a job which does not fit its data ends
  // before a chief claims the run's directory.
  std::unique_ptr<ChiefServer> chief;
  if (cluster.hosts_chief()) {
    WEIR_ASSIGN_OR_RETURN(
        chief, ChiefServer::Start(
                   ChiefOptions(flags.chief, spec, task, transport.get())));
  }
  const AdminScope admin(task.admin, [&worker] { return worker->Ready(); });
  AddPages(worker.get(), chief.get(), task.admin);
  // The chief's pages are this worker's, too.
  const AdminFile admin_file(chief == nullptr ? "" : flags.chief.workdir,
                             task.admin);
  task.stop->OnStop([&worker, &chief](int number) {
    const std::string reason = absl::StrCat("ended by signal ", number);
    if (chief != nullptr) {
      LOG_INFO("signal {}: ending the job after a checkpoint", number);
      chief->RequestStop(reason);
    } else {
      LOG_INFO("signal {}: stopping after the contribution in flight", number);
      worker->RequestStop(reason);
    }
  });
  absl::Status status = worker->Run();
  if (chief != nullptr) {
    status = JobEnd(chief.get(), status);
  }
  task.stop->OnStop({});
  // The chief ends well when its job did, and any other task as it was asked.
  if (chief == nullptr && status.ok() && task.stop->first() != 0) {
    return absl::CancelledError("the job is done");
  }
  return status;
}

void AddFlags(CLI::App* app, Flags* flags) {
  AddJobFlags(app, "--job", &flags->job, &flags->sets, &flags->data_dir);
  AddChiefFlags(app, &flags->chief);
  FindFlag(app, "--workdir")
      .Describe(
          "the run's directory; a worker without it cannot see that the job is "
          "done while the chief is away");
  AddOption(app, "--transport", &flags->transport,
            "auto: shared memory to ps on this host; grpc; shm")
      .ShowDefault();
  AddOption(app, "--checksum", &flags->checksum,
            "of payloads: auto (to ps on other hosts), on, off")
      .ShowDefault();
  AddOption(app, "--channels_per_peer", &flags->channels_per_peer,
            "streams to each ps; default one over gRPC, and in shared "
            "memory one for every four processors, at most 8")
      .Range(0, 16);
  AddDeviceFlags(app, &flags->device, &flags->device_plugin);
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  return weir::TaskMain(argc, argv, weir::TaskRole::kWorker,
                        "trains with the parameters of a cluster's ps",
                        weir::AddFlags, weir::RunWorker);
}
