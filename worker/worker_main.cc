// weir_worker: one worker, and the chief when the cluster has none of its own.
//
//   TF_CONFIG=... weir_worker --job FILE --workdir DIR [--data_dir DIR]
//
// The exit codes are those of common/base/exit_code.h. The last line of the log
// says why the process ended.
#include <grpc/support/log.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cc/transport/shm_transport.h"
#include "common/base/exit_code.h"
#include "common/base/failpoint.h"
#include "common/base/logging.h"
#include "common/base/malloc_settings.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "common/job/cluster_spec.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/job/job_spec_text.h"
#include "proto/job/tf_config.h"
#include "server/chief/chief_server.h"
#include "worker/train/worker_task.h"

namespace weir {
namespace {

// How long a worker that failed waits for the hosted chief to end the job. The
// chief knows the better reason, but may learn it a little later.
constexpr std::chrono::seconds kFailedJobWait{15};

struct Flags {
  std::string job;
  std::vector<std::string> sets;
  std::string workdir;  // empty: "."
  std::string data_dir = ".";
  std::string device = "auto";
  std::string device_plugin;
  std::string transport = "auto";
  std::string checksum = "auto";
  int channels_per_peer = 1;
  std::string cluster;
  std::string task_index;
  // For the chief, where this worker hosts it.
  std::string init_from;
  bool resume = false;
  bool allow_older = false;
  bool evaluator_expected = false;
};

sigset_t EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGUSR1);  // ends the watcher itself
  return signals;
}

// Turns a signal into a call. Main blocks the signals before any other thread
// exists, so none of them can take one, and one that comes early waits here.
class SignalWatcher {
 public:
  explicit SignalWatcher(std::function<void(int)> on_signal) {
    thread_ = std::thread([this, on_signal = std::move(on_signal)] {
      const sigset_t signals = EndSignals();
      int signal = 0;
      while (sigwait(&signals, &signal) == 0 && signal != SIGUSR1) {
        if (signal_.exchange(signal) != 0) {
          _exit(128 + signal);  // a second signal ends the process at once
        }
        on_signal(signal);
      }
    });
  }
  ~SignalWatcher() {
    // sigwait cannot be interrupted, but takes this signal, too.
    pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
  }
  int signal() const { return signal_; }

 private:
  std::atomic<int> signal_{0};
  std::thread thread_;
};

absl::StatusOr<ClusterSpec> FindCluster(const Flags& flags) {
  ClusterSources sources = ClusterSources::FromEnv();
  sources.flag_cluster = flags.cluster;
  sources.flag_task_index = flags.task_index;
  // The flags have no task type, as this program is always a worker.
  if (!flags.cluster.empty() || !flags.task_index.empty()) {
    sources.flag_task_type = "worker";
  }
  WEIR_ASSIGN_OR_RETURN(ClusterSpec cluster, ResolveCluster(sources));
  if (!cluster.task().has_value()) {
    return absl::InvalidArgumentError(
        "no cluster is given; set TF_CONFIG, or --cluster and --task_index, or "
        "run ./weir train for a local one");
  }
  if (cluster.task()->role != TaskRole::kWorker) {
    return absl::InvalidArgumentError(
        absl::StrCat("this task is ", cluster.task()->ToString(),
                     "; weir_worker runs a worker"));
  }
  return cluster;
}

std::string HostName() {
  char name[256] = {};  // one byte more than is asked for, so it ends with 0
  if (gethostname(name, sizeof(name) - 1) != 0) {
    return "unknown";
  }
  return name;
}

absl::StatusOr<std::unique_ptr<ChiefServer>> HostChief(
    const Flags& flags, const JobSpec& spec, const ClusterSpec& cluster,
    Transport* transport) {
  ChiefServer::Options options;
  options.runner.spec = spec;
  options.runner.ps_addresses = cluster.ps_addresses();
  options.runner.worker_count = cluster.worker_count();
  options.runner.cluster_fingerprint = cluster.fingerprint();
  std::string workdir = flags.workdir;
  if (workdir.empty()) {
    workdir = ".";
  }
  options.runner.workdir = std::filesystem::absolute(workdir).string();
  options.runner.resume = flags.resume;
  options.runner.allow_older = flags.allow_older;
  options.runner.init_from = flags.init_from;
  options.runner.evaluator_expected = flags.evaluator_expected;
  options.runner.transport = transport;
  options.address = cluster.bind_address();
  return ChiefServer::Start(std::move(options));
}

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

absl::Status RunWorker(const Flags& flags, const ClusterSpec& cluster,
                       int* signal) {
  WEIR_ASSIGN_OR_RETURN(const JobSpec spec, LoadJobSpec(flags.job, flags.sets));
  WEIR_ASSIGN_OR_RETURN(const TransportChoice choice,
                        ParseTransportChoice(flags.transport));
  GrpcTransportOptions grpc;
  grpc.own_connections = flags.channels_per_peer > 1;
  WEIR_ASSIGN_OR_RETURN(grpc.checksum, ParseChecksumChoice(flags.checksum));
  const std::unique_ptr<Transport> transport = MakeTransport(choice, grpc);
  std::random_device random;
  WorkerTask::Options options;
  options.spec = spec;
  options.index = cluster.task()->index;
  options.process = (uint64_t{random()} << 32) | random();
  options.host = HostName();
  options.chief_address = cluster.chief_address();
  options.cluster_fingerprint = cluster.fingerprint();
  options.data_dir = flags.data_dir;
  options.backend.device = flags.device;
  options.backend.plugin_path = flags.device_plugin;
  options.backend.auto_index = options.index;
  options.transport = transport.get();
  options.channels_per_peer = flags.channels_per_peer;
  // Without a working directory there is no DONE to look at.
  if (!flags.workdir.empty()) {
    options.job_is_done = [workdir = flags.workdir,
                           text = CanonicalJobSpecText(spec)] {
      return JobIsDone(Files::Real(), workdir, text);
    };
  }
  WEIR_ASSIGN_OR_RETURN(const auto task,
                        WorkerTask::Create(std::move(options)));
  // After the task is made, so that a job which does not fit its data ends
  // before a chief claims the run's directory.
  std::unique_ptr<ChiefServer> chief;
  if (cluster.hosts_chief()) {
    WEIR_ASSIGN_OR_RETURN(chief,
                          HostChief(flags, spec, cluster, transport.get()));
  }
  absl::Status status;
  {
    // It uses task and chief, so it ends before them.
    SignalWatcher watcher([&task, &chief](int number) {
      const std::string reason = absl::StrCat("ended by signal ", number);
      if (chief != nullptr) {
        LOG_INFO("signal {}: ending the job after a checkpoint", number);
        chief->RequestStop(reason);
      } else {
        LOG_INFO("signal {}: stopping after the contribution in flight",
                 number);
        task->RequestStop(reason);
      }
    });
    status = task->Run();
    if (chief != nullptr) {
      status = JobEnd(chief.get(), status);
    }
    *signal = watcher.signal();
  }
  return status;
}

int Main(const Flags& flags) {
  const sigset_t signals = EndSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const absl::Status failpoints = InitFailpointsFromEnv();
  const absl::StatusOr<ClusterSpec> cluster = FindCluster(flags);
  // Errors of both are kept until there is a log to say them in.
  std::string name = "worker";
  if (cluster.ok()) {
    name = cluster->task()->ToString();
  }
  InitLogging(name);
  int signal = 0;
  absl::Status status = failpoints;
  if (status.ok()) {
    status = cluster.status();
  }
  if (status.ok()) {
    status = RunWorker(flags, *cluster, &signal);
  }
  if (status.ok() && signal == 0) {
    LOG_INFO("done");
    return kExitOk;
  }
  // Ended as the signal asked. With another error that one is the reason, also
  // after a signal.
  if (signal != 0 &&
      (status.ok() || status.code() == absl::StatusCode::kCancelled)) {
    LOG_INFO("ended by signal {}", signal);
    return signal == SIGINT ? kExitInterrupted : kExitTerminated;
  }
  LOG_ERROR("{}", std::string(status.message()));
  return ExitCodeFor(status);
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::SetMallocForBulk();
  // gRPC's errors come back as statuses, and its own log would repeat them.
  gpr_set_log_function([](gpr_log_func_args* line) {
    LOG_DEBUG("{}:{} {}", line->file, line->line, line->message);
  });
  weir::Flags flags;
  CLI::App app("weir_worker: trains with the parameters of a cluster's ps");
  app.add_option("--job", flags.job, "job file")->required();
  app.add_option("--set", flags.sets, "path=value, overrides the job file");
  app.add_option("--workdir", flags.workdir,
                 "the run's directory; a worker without it cannot see that the "
                 "job is done while the chief is away");
  app.add_option("--data_dir", flags.data_dir, "where data paths begin");
  app.add_option("--transport", flags.transport,
                 "auto: shared memory to ps on this host; grpc; shm")
      ->capture_default_str();
  app.add_option("--checksum", flags.checksum,
                 "of payloads: auto (to ps on other hosts), on, off")
      ->capture_default_str();
  app.add_option("--channels_per_peer", flags.channels_per_peer,
                 "gRPC connections to each ps")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app.add_option("--device", flags.device,
                 "auto, cpu, cuda, cuda:N, cuda:N,M or cuda:all")
      ->capture_default_str();
  app.add_option("--device_plugin", flags.device_plugin,
                 "file of the GPU's plug-in; default beside this program");
  app.add_option(
      "--cluster", flags.cluster,
      "\"ps=host:port,...;worker=host:port,...\"; default TF_CONFIG");
  app.add_option("--task_index", flags.task_index,
                 "which worker this is; default TF_CONFIG's");
  app.add_option("--init_from", flags.init_from,
                 "hosted chief: start from these values (safetensors)");
  app.add_flag("--resume", flags.resume,
               "hosted chief: go on from the newest checkpoint");
  app.add_flag("--allow_older", flags.allow_older,
               "hosted chief: take an older checkpoint if need be");
  app.add_flag("--evaluator_expected", flags.evaluator_expected,
               "hosted chief: wait for an evaluator at the end");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? weir::kExitOk : weir::kExitUsage;
  }
  return weir::Main(flags);
}
