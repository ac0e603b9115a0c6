#include "deploy/launcher/train.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "common/objects/any_store.h"
#include "deploy/launcher/job_run.h"
#include "deploy/launcher/local_cluster.h"
#include "deploy/launcher/progress.h"
#include "deploy/launcher/summary.h"
#include "deploy/launcher/workdir.h"
#include "deploy/watch/chief_poll.h"
#include "deploy/watch/report_text.h"
#include "deploy/watch/terminal.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/checkpoint/model_export.h"
#include "proto/job/job_spec_text.h"

namespace weir {
namespace {

constexpr int64_t kStatusEveryNs = 250'000'000;
constexpr int64_t kReportEveryNs = 2'000'000'000;

constexpr char kJobName[] = "job.textproto";

std::string StatusName(int exit_code) {
  switch (exit_code) {
    case kExitOk:
      return "done";
    case kExitInterrupted:
    case kExitTerminated:
    case 128 + SIGHUP:
      return "interrupted";
    default:
      return "failed";
  }
}

absl::Status WriteSummary(const JobSpec& spec,
                          const LocalClusterOptions& cluster, const JobRun& run,
                          double wall_seconds) {
  const std::string& workdir = cluster.workdir;
  const std::string place = PlaceOfRun(workdir, cluster.checkpoints);
  nlohmann::ordered_json summary = {{"status", StatusName(run.exit_code())},
                                    {"mode", UpdateModeName(spec.update())},
                                    {"wall_seconds", wall_seconds},
                                    {"checkpoint", ""},
                                    {"model_sha256", ""}};
  ReadCurves(AnyStore(), place, &summary);
  summary["tasks"] = TasksJson(run.tasks());
  WEIR_ASSIGN_OR_RETURN(const auto checkpoints,
                        ListCheckpoints(AnyStore(), place + "/checkpoints"));
  if (!checkpoints.empty()) {
    summary["checkpoint"] = checkpoints.back().name;
    const auto sha = ExportedSha256(AnyStore(), checkpoints.back().path);
    if (sha.ok()) {
      summary["model_sha256"] = *sha;
    } else {
      // The run is over; a checkpoint that cannot be read must not hide what
      // else there is to say about it.
      absl::FPrintF(stderr, "weir: %s\n", sha.status().message());
    }
  }
  WEIR_RETURN_IF_ERROR(Files::Real()->WriteAtomically(workdir + "/summary.json",
                                                      summary.dump(2) + "\n"));
  absl::PrintF("%s  %-14s %s\n", SummaryTable(summary), "written to", workdir);
  return absl::OkStatus();
}

// Chooses the tasks of the job in `workdir`, an absolute path.
LocalClusterOptions ClusterFor(const TrainOptions& options, const JobSpec& spec,
                               const std::string& workdir) {
  LocalClusterOptions cluster = options;
  cluster.workdir = workdir;
  cluster.job_path = JoinPath(workdir, kJobName);
  cluster.data_dir = AbsolutePlace(options.data_dir);
  std::map<std::string, int> before;
  if (options.resume) {
    before = KeptTaskCounts(workdir);
  }
  const bool guesses =
      before.empty() && (options.ps_count == 0 || options.worker_count == 0);
  if (options.ps_count == 0) {
    cluster.ps_count = std::max(before["ps"], 1);
  }
  if (options.worker_count == 0) {
    cluster.worker_count = std::max(before["worker"], 1);
  }
  cluster.chief = options.chief || before["chief"] > 0;
  cluster.evaluator = options.evaluator && spec.has_evaluation();
  if (options.resume) {
    std::string words = absl::StrCat("resuming with --ps ", cluster.ps_count,
                                     " --workers ", cluster.worker_count);
    if (cluster.chief) {
      words += " --chief";
    }
    if (guesses) {
      words +=
          "; nothing here says how many tasks the run had, so choose others by "
          "these flags";
    }
    absl::PrintF("%s\n", words);
  }
  return cluster;
}

// Shows what the chief says while the job runs.
class JobView {
 public:
  JobView(ProgressLine* progress, bool terminal)
      : progress_(*progress), terminal_(terminal) {}

  void Poll(ChiefPoll* chief, int64_t now_ns) {
    if (now_ns - shown_ns_ >= kStatusEveryNs) {
      // Each time: the user may change the terminal's size.
      progress_.Show(chief->Status(), now_ns,
                     SizeOfTerminal(STDOUT_FILENO).columns);
      shown_ns_ = now_ns;
    }
    // A pipe gets plain lines of progress alone.
    if (terminal_ && now_ns - reported_ns_ >= kReportEveryNs) {
      const std::string note = causes_.Next(chief->Report().cause(), now_ns);
      if (!note.empty()) {
        progress_.Note(note);
      }
      reported_ns_ = now_ns;
    }
  }

 private:
  ProgressLine& progress_;
  const bool terminal_;
  CauseNotes causes_;
  int64_t shown_ns_ = 0;
  int64_t reported_ns_ = 0;
};

}  // namespace

absl::StatusOr<int> RunTraining(const TrainOptions& options) {
  // A job file that is wrong is found before anything is made.
  WEIR_ASSIGN_OR_RETURN(const JobSpec spec,
                        LoadJobSpec(options.job_path, options.sets));
  // What is resumed may be elsewhere, and this directory new.
  const bool resumes_here = options.resume && options.checkpoints.empty();
  WEIR_ASSIGN_OR_RETURN(const Workdir held,
                        PrepareWorkdir({.workdir = options.workdir,
                                        .name = spec.name(),
                                        .resume = resumes_here,
                                        .mark = kJobName}));
  const std::string& workdir = held.path;
  const std::string place = PlaceOfRun(workdir, options.checkpoints);
  if (options.resume &&
      JobIsDone(AnyStore(), place, CanonicalJobSpecText(spec))) {
    absl::PrintF(
        "the job is done already: %s/%s; to train again choose another "
        "--workdir\n",
        place, kDoneName);
    return kExitOk;
  }

  const LocalClusterOptions cluster = ClusterFor(options, spec, workdir);
  // Every task reads one file, with the overrides in it.
  WEIR_RETURN_IF_ERROR(Files::Real()->WriteAtomically(
      cluster.job_path, CanonicalJobSpecText(spec)));
  WEIR_ASSIGN_OR_RETURN(const LocalCluster plan, PlanLocalCluster(cluster));

  WEIR_RETURN_IF_ERROR(KeepSecret(workdir, plan.security));
  WEIR_RETURN_IF_ERROR(KeepCluster(workdir, plan.cluster_json));
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  ProgressLine progress(stdout, terminal);
  PageAnnouncer page(
      cluster.admin, workdir, plan.security,
      [&progress](const std::string& line) { progress.Note(line); });
  std::optional<ChiefPoll> chief;
  JobView view(&progress, terminal);
  JobRun::Options run_options;
  run_options.program = "weir train";
  run_options.rules.max_restarts = options.max_restarts;
  run_options.show_output = false;
  run_options.note = [&](const std::string& line) { progress.Note(line); };
  run_options.on_poll = [&](int64_t now_ns) {
    page.Poll();
    view.Poll(&*chief, now_ns);
  };
  WEIR_ASSIGN_OR_RETURN(const auto run, JobRun::Create(plan, run_options));
  // gRPC's threads come after the signals, which would end them otherwise.
  WEIR_ASSIGN_OR_RETURN(
      const auto security,
      Security::Create(SecurityOf(plan.security, "admin", 0), PeerRole::kAdmin,
                       /*index=*/0));
  chief.emplace(plan.chief_address, *security);
  const int64_t begin_ns = Clock::Real()->NowNs();
  WEIR_RETURN_IF_ERROR(run->Run());
  progress.Finish();
  const double wall_seconds =
      static_cast<double>(Clock::Real()->NowNs() - begin_ns) / 1e9;
  run->Explain();
  WEIR_RETURN_IF_ERROR(WriteSummary(spec, cluster, *run, wall_seconds));
  return run->exit_code();
}

}  // namespace weir
