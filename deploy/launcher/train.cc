#include "deploy/launcher/train.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "deploy/launcher/child_process.h"
#include "deploy/launcher/local_cluster.h"
#include "deploy/launcher/progress.h"
#include "deploy/launcher/summary.h"
#include "deploy/launcher/supervisor.h"
#include "deploy/launcher/workdir.h"
#include "grpcpp/grpcpp.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/checkpoint/model_export.h"
#include "proto/chief.grpc.pb.h"
#include "proto/job/job_spec_text.h"
#include "proto/wire/grpc_channel.h"
#include "proto/wire/grpc_deadline.h"

namespace weir {
namespace {

constexpr auto kPollEvery = std::chrono::milliseconds(50);
constexpr int64_t kStatusEveryNs = 250'000'000;

constexpr char kJobName[] = "job.textproto";

// Counted by the signal handler; the loop reads it.
volatile sig_atomic_t interrupts = 0;

void CountInterrupt(int) { interrupts = interrupts + 1; }

// Asks the chief for its view by short calls. While it does not answer (it is
// not yet up, or starts again) the last answer stays.
class ChiefPoll {
 public:
  explicit ChiefPoll(const std::string& address)
      : channel_(grpc::CreateCustomChannel(
            address, grpc::InsecureChannelCredentials(), Arguments())),
        stub_(Chief::NewStub(channel_)) {}

  const ChiefStatus& Get() {
    grpc::ClientContext context;
    Prepare(&context);
    ChiefStatus status;
    if (stub_->GetStatus(&context, {}, &status).ok()) {
      last_ = status;
    }
    return last_;
  }

  // Returns false when the chief may not have heard it.
  bool RequestStop() {
    grpc::ClientContext context;
    Prepare(&context);
    RequestStopRequest request;
    request.set_reason("interrupted by the user");
    RequestStopReply reply;
    return stub_->RequestStop(&context, request, &reply).ok();
  }

 private:
  // The chief is not up yet when the first call is made. gRPC's own backoff of
  // 1 s and more would delay the first line of progress.
  static grpc::ChannelArguments Arguments() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
    return arguments;
  }

  // A call may hold up the loop that watches the tasks, so it is short.
  void Prepare(grpc::ClientContext* context) {
    Reconnect(channel_.get());
    context->set_deadline(DeadlineAfter(std::chrono::milliseconds(500)));
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<Chief::Stub> stub_;
  ChiefStatus last_;
};

std::string ModeName(const JobSpec& spec) {
  switch (spec.update().mode_case()) {
    case Update::kSync:
      return "sync";
    case Update::kBoundedStaleness:
      return "bounded_staleness";
    default:  // async is also the mode of a job that names none
      return spec.update().async().lock_free() ? "async_lock_free" : "async";
  }
}

std::string StatusName(int exit_code) {
  switch (exit_code) {
    case kExitOk:
      return "done";
    case kExitInterrupted:
      return "interrupted";
    default:
      return "failed";
  }
}

// Makes `workdir` and its folder for logs. Refuses a directory that holds
// another run, and with `resume` one that holds no run.
absl::Status PrepareWorkdir(const std::string& workdir, bool resume) {
  Files* files = Files::Real();
  WEIR_ASSIGN_OR_RETURN(const bool known,
                        files->Exists(JoinPath(workdir, kJobName)));
  if (resume && !known) {
    return absl::InvalidArgumentError(
        absl::StrCat("--resume: there is no run in ", workdir,
                     "; check --workdir, or start one without --resume"));
  }
  if (!resume) {
    WEIR_RETURN_IF_ERROR(CheckHoldsNoRun(workdir));
  }
  return files->MakeDirectories(workdir + "/logs");
}

// Signals the tasks that still run, as hard as the supervisor says, but only
// when that has changed since *pressed.
void Press(const Supervisor& supervisor, const std::vector<pid_t>& pids,
           int64_t now_ns, Supervisor::Pressure* pressed) {
  const Supervisor::Pressure pressure = supervisor.PressureAt(now_ns);
  if (pressure == *pressed) {
    return;
  }
  *pressed = pressure;
  int signal_number = SIGTERM;
  if (pressure == Supervisor::Pressure::kKill) {
    signal_number = SIGKILL;
  }
  for (size_t i = 0; i < pids.size(); ++i) {
    if (supervisor.tasks()[i].running) {
      kill(pids[i], signal_number);
    }
  }
}

// Returns the command for a task's next start. Tests name a failpoint for one
// task by WEIR_FAILPOINT_WORKER_1=name:nth. Only the task's first process gets
// it; with it in the next one, too, no task would ever get past the failpoint.
ChildCommand CommandFor(const LocalCluster& plan, int task,
                        const LocalTask& started) {
  ChildCommand command = plan.commands[task];
  if (started.restarts == 0) {
    const std::string name =
        absl::StrCat("WEIR_FAILPOINT_", absl::AsciiStrToUpper(started.role),
                     "_", started.index);
    // Only this thread changes or reads the environment.
    const char* value = std::getenv(name.c_str());  // NOLINT
    if (value != nullptr) {
      command.environment.push_back(absl::StrCat("WEIR_FAILPOINT=", value));
    }
  }
  return command;
}

// Starts, watches and reaps until nothing runs.
absl::Status RunTasks(const LocalCluster& plan, Supervisor* supervisor,
                      ProgressLine* progress) {
  Clock* clock = Clock::Real();
  ChiefPoll chief(plan.chief_address);
  std::vector<pid_t> pids(plan.tasks.size(), 0);
  Supervisor::Pressure pressed = Supervisor::Pressure::kNone;
  int handled_interrupts = 0;
  bool stop_is_due = false;
  int64_t status_ns = 0;
  while (!supervisor->finished()) {
    const int64_t now_ns = clock->NowNs();
    for (const int task : supervisor->TakeStarts(now_ns)) {
      const LocalTask& started = supervisor->tasks()[task];
      if (started.restarts > 0) {
        progress->Note(absl::StrCat(started.name(), " ended with code ",
                                    started.exit_code, "; started again (",
                                    started.restarts, ")"));
      }
      WEIR_ASSIGN_OR_RETURN(pids[task],
                            StartChild(CommandFor(plan, task, started)));
    }
    for (size_t i = 0; i < pids.size(); ++i) {
      if (supervisor->tasks()[i].running) {
        if (const auto code = ReapChild(pids[i])) {
          supervisor->OnExit(static_cast<int>(i), *code, now_ns);
        }
      }
    }
    // One round for each signal: two that come between two polls are a demand
    // to stop and a demand to kill.
    while (handled_interrupts < interrupts) {
      if (++handled_interrupts == 1) {
        progress->Note("stopping after a checkpoint; Ctrl-C again kills");
        stop_is_due = true;
      }
      supervisor->OnInterrupt(now_ns);
    }
    // Until the chief hears it: it may be starting when Ctrl-C comes.
    if (stop_is_due) {
      stop_is_due = !chief.RequestStop();
    }
    Press(*supervisor, pids, now_ns, &pressed);
    if (!supervisor->ending() && now_ns - status_ns >= kStatusEveryNs) {
      progress->Show(chief.Get(), now_ns);
      status_ns = now_ns;
    }
    std::this_thread::sleep_for(kPollEvery);
  }
  progress->Finish();
  return absl::OkStatus();
}

// Returns the last lines of a log, for a user who reads only the terminal.
std::string LogTail(const std::string& path) {
  const auto text = Files::Real()->ReadAll(path);
  if (!text.ok()) {
    return "";
  }
  size_t begin = text->size();
  for (int lines = 0; begin > 0 && lines < 6; --begin) {
    if ((*text)[begin - 1] == '\n') {
      ++lines;
    }
  }
  if (begin > 0) {
    ++begin;  // past the line break that ended the search
  }
  return text->substr(begin);
}

void ExplainFailure(const LocalCluster& plan, const Supervisor& supervisor) {
  std::fprintf(stderr, "weir: %s\n", supervisor.reason().c_str());
  for (size_t i = 0; i < plan.tasks.size(); ++i) {
    const LocalTask& task = supervisor.tasks()[i];
    // The log of a task that was killed (137) or lost a peer (138) does not
    // hold the reason. That of an abort (134) does.
    if (task.exit_code > 0 && task.exit_code < 137 &&
        supervisor.exit_code() == task.exit_code) {
      std::fprintf(stderr, "--- %s\n%s", plan.commands[i].log_path.c_str(),
                   LogTail(plan.commands[i].log_path).c_str());
      return;
    }
  }
}

absl::Status WriteSummary(const JobSpec& spec, const std::string& workdir,
                          const Supervisor& supervisor, double wall_seconds) {
  RunSummary summary;
  summary.status = StatusName(supervisor.exit_code());
  summary.wall_seconds = wall_seconds;
  summary.mode = ModeName(spec);
  summary.tasks = supervisor.tasks();
  ReadCurves(Files::Real(), workdir, &summary);
  WEIR_ASSIGN_OR_RETURN(
      const auto checkpoints,
      ListCheckpoints(Files::Real(), workdir + "/checkpoints"));
  if (!checkpoints.empty()) {
    summary.checkpoint = checkpoints.back().name;
    const auto sha = ExportedSha256(Files::Real(), checkpoints.back().path);
    if (sha.ok()) {
      summary.model_sha256 = *sha;
    } else {
      // The run is over; a checkpoint that cannot be read must not hide what
      // else there is to say about it.
      std::fprintf(stderr, "weir: %s\n",
                   std::string(sha.status().message()).c_str());
    }
  }
  WEIR_RETURN_IF_ERROR(Files::Real()->WriteAtomically(workdir + "/summary.json",
                                                      SummaryJson(summary)));
  std::printf("%s", SummaryTable(summary).c_str());
  std::printf("  %-14s %s\n", "written to", workdir.c_str());
  return absl::OkStatus();
}

// Chooses the tasks of the job in `workdir`, an absolute path.
LocalClusterOptions ClusterFor(const TrainOptions& options, const JobSpec& spec,
                               const std::string& workdir) {
  LocalClusterOptions cluster;
  cluster.bin_dir = options.bin_dir;
  cluster.job_path = JoinPath(workdir, kJobName);
  cluster.workdir = workdir;
  std::error_code ignored;
  cluster.data_dir =
      std::filesystem::absolute(options.data_dir, ignored).string();
  std::map<std::string, int> before;
  if (options.resume) {
    before = TaskCounts(Files::Real(), workdir);
  }
  const auto count = [&before](int asked, const char* role) {
    if (asked > 0) {
      return asked;
    }
    return std::max(before[role], 1);
  };
  cluster.ps_count = count(options.ps_count, "ps");
  cluster.worker_count = count(options.worker_count, "worker");
  cluster.chief = options.chief || before["chief"] > 0;
  cluster.evaluator = options.evaluator && spec.has_evaluation();
  cluster.resume = options.resume;
  cluster.allow_older = options.allow_older;
  cluster.init_from = options.init_from;
  cluster.transport = options.transport;
  cluster.channels_per_peer = options.channels_per_peer;
  cluster.device = options.device;
  cluster.device_plugin = options.device_plugin;
  return cluster;
}

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = CountInterrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

absl::StatusOr<int> RunTraining(const TrainOptions& options) {
  // A job file that is wrong is found before anything is made.
  WEIR_ASSIGN_OR_RETURN(const JobSpec spec,
                        LoadJobSpec(options.job_path, options.sets));
  std::string workdir = options.workdir;
  if (workdir.empty()) {
    WEIR_ASSIGN_OR_RETURN(workdir, DefaultWorkdir(spec.name(), options.resume));
  }
  std::error_code ignored;
  workdir = std::filesystem::absolute(workdir, ignored).string();
  WEIR_RETURN_IF_ERROR(PrepareWorkdir(workdir, options.resume));
  if (options.resume &&
      JobIsDone(Files::Real(), workdir, CanonicalJobSpecText(spec))) {
    std::printf(
        "the job is done already: %s/%s; to train again choose another "
        "--workdir\n",
        workdir.c_str(), kDoneName);
    return kExitOk;
  }

  const LocalClusterOptions cluster = ClusterFor(options, spec, workdir);
  // Every task reads one file, with the overrides in it.
  WEIR_RETURN_IF_ERROR(Files::Real()->WriteAtomically(
      cluster.job_path, CanonicalJobSpecText(spec)));
  WEIR_ASSIGN_OR_RETURN(const LocalCluster plan, PlanLocalCluster(cluster));

  // From here on Ctrl-C ends the tasks in order.
  CatchInterrupts();
  Supervisor::Options rules;
  rules.max_restarts = options.max_restarts;
  Supervisor supervisor(rules, plan.tasks);
  ProgressLine progress(stdout, isatty(STDOUT_FILENO) != 0);
  const int64_t begin_ns = Clock::Real()->NowNs();
  WEIR_RETURN_IF_ERROR(RunTasks(plan, &supervisor, &progress));
  const double wall_seconds =
      static_cast<double>(Clock::Real()->NowNs() - begin_ns) / 1e9;
  if (!supervisor.reason().empty()) {
    ExplainFailure(plan, supervisor);
  }
  WEIR_RETURN_IF_ERROR(WriteSummary(spec, workdir, supervisor, wall_seconds));
  return supervisor.exit_code();
}

}  // namespace weir
