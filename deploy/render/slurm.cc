// A batch script of Slurm: one step with a task for each task of the job.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/status.h"
#include "deploy/launcher/slurm_step.h"
#include "deploy/render/members.h"
#include "deploy/render/quantity.h"
#include "deploy/render/yaml.h"

namespace weir {
namespace {

// Between SIGTERM and the time limit: Weir's grace, and the way of the signal.
constexpr int kSignalExtraSeconds = 35;

// By default jobs have ports that lie apart, below those that Linux gives to
// clients: 1,400 jobs with 16 tasks on a node each.
constexpr char kPortOfJob[] = "$((10000 + SLURM_JOB_ID % 1400 * 16))";

// One task of the step: its code is that of its `weir task`. A program that
// fails for good (1 to 127, but 5: replaced by another one) ends the others, of
// which some may wait for it without end. They save the job first, so nobody
// may signal them twice: only the first task to fail does, and only if the step
// was not being stopped. The shell itself outlives the step's SIGTERM.
constexpr char kOneTask[] =
    R"(# shellcheck disable=SC2016  # each task's shell expands it
one_task='
  stopped=
  trap stopped=1 TERM
  code=0
  (
    if [ -n "$stopped" ] || [ -e "$run/.failed" ]; then
      exit 143
    fi
    exec "$@"
  ) || code=$?
  if [ "$code" -gt 0 ] && [ "$code" -lt 128 ] && [ "$code" -ne 5 ] &&
    [ -z "$stopped" ] && (set -C && echo "$code" >"$run/.failed") 2>&-; then
    scancel --signal=TERM "$SLURM_JOB_ID.$SLURM_STEP_ID"
  fi
  exit "$code"'
)";

// srun ends with the largest code of its tasks.
constexpr char kEnd[] = R"(if [ -s "$run/.failed" ]; then
  read -r code <"$run/.failed"  # why the others were stopped
elif [ -e "$run/DONE" ]; then
  code=0  # a task failed, and the job went on without it
fi
exit "$code"
)";

// A word as a shell reads it back.
std::string ShellWord(const std::string& word) {
  const bool plain =
      !word.empty() &&
      std::all_of(word.begin(), word.end(), [](unsigned char c) {
        return absl::ascii_isalnum(c) ||
               absl::StrContains("_-./:=,+@%",
                                 std::string(1, static_cast<char>(c)));
      });
  if (plain) {
    return word;
  }
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

class SlurmTarget : public Target {
 public:
  absl::Status Check(const RenderPlan& plan) const override {
    const RenderOptions& options = plan.options;
    const std::pair<const char*, bool> unknown[] = {
        {"--namespace", !options.name_space.empty()},
        {"--tolerate", !options.tolerations.empty()},
        {"--node", !options.node_selectors.empty()},
        {"--storage", !options.storage.empty()},
        {"--storage_class", !options.storage_class.empty()},
        {"--run_claim", !options.run_claim.empty()},
        {"--checkpoints", !options.checkpoints.empty()},
        {"--store_secret", !options.store_secret.empty()},
        {"--allow_unguarded", options.allow_unguarded},
        {"--service_account", !options.service_account.empty()},
        {"--secret", !options.secret.empty()},
        {"--tls", options.tls},
        {"--data_claim", !options.data_claim.empty()},
        {"--data_image_path", !options.data_image_path.empty()},
        {"--data_bucket", !options.data_bucket.empty()},
        {"--evaluator_command", !options.evaluator_command.empty()}};
    for (const auto& [flag, given] : unknown) {
      if (given) {
        return Invalid(flag,
                       ": a batch script of Slurm has no such thing; leave it "
                       "out");
      }
    }
    if (options.gpus > 1) {
      return Invalid("--gpu ", options.gpus,
                     ": under Slurm a worker has one GPU of those of its node; "
                     "write --gpu 1 and raise --workers");
    }
    if (options.port > kSlurmPortBaseMax) {
      return Invalid("--port ", options.port,
                     ": under Slurm it is that of a node's first task, and the "
                     "others have the next ones; choose one up to ",
                     kSlurmPortBaseMax);
    }
    return absl::OkStatus();
  }

  std::string Render(const RenderPlan& plan) const override {
    std::string text = "#!/bin/bash\n";
    for (const std::string& line : Directives(plan)) {
      absl::StrAppend(&text, "#SBATCH ", line, "\n");
    }
    absl::StrAppend(&text, CommentLines(Head(plan)), "set -euo pipefail\n\n");
    absl::StrAppend(
        &text,
        CommentLines({"One directory that all nodes see: checkpoints, curves, "
                      "the secret."}),
        "export run=${WEIR_RUN:-$SLURM_SUBMIT_DIR/runs/", plan.name, "}\n",
        "mkdir -p \"$run\"\n", "rm -f \"$run/.failed\"\n\n",
        CommentLines({"The job's secret is made once, for this user alone."}),
        "if [ ! -s \"$run/.secret\" ]; then\n"
        "  (umask 077 && weir secret >\"$run/.secret\")\n"
        "fi\n"
        "export WEIR_SECRET_FILE=\"$run/.secret\"\n");
    for (const auto& [name, value] : StoreVariables(plan)) {
      absl::StrAppend(&text, "export ", name, "=", ShellWord(value), "\n");
    }
    absl::StrAppend(&text, "\n");
    absl::StrAppend(
        &text,
        CommentLines({"`weir task` starts a program again that was killed. One "
                      "that fails for good",
                      "stops the other tasks, which save the job first."}),
        kOneTask, "\n",
        CommentLines(
            {"A task that ends does not end the others: the chief ends "
             "the job."}),
        "code=0\n", "srun --ntasks=", plan.task_count(),
        " --cpus-per-task=", Cpus(plan),
        " --kill-on-bad-exit=0 \\\n  --wait=0 --label \\\n  "
        "/bin/bash -c \"$one_task\" task \\\n  ",
        Command(plan), " \\\n  || code=$?\n", kEnd);
    return text;
  }

  std::vector<Choice> Choices(const RenderPlan& plan) const override {
    return {
        {"tasks", absl::StrCat(plan.task_count()),
         "one for each task; --layout says which is which"},
        {"cpus-per-task", absl::StrCat(Cpus(plan)),
         "the most that a role asks for: the tasks of a step are alike"},
        {"mem-per-cpu", absl::StrCat(MemoryPerCpu(plan), "M"),
         "the most that a role asks for, for each of its processors"},
        {"signal",
         absl::StrCat("TERM@",
                      plan.options.grace_seconds + kSignalExtraSeconds),
         "to all tasks before the time limit: the job is saved"},
        {"requeue", "yes", "preempted, or after a node was lost, it goes on"}};
  }

 private:
  static int Cpus(const RenderPlan& plan) {
    int milli_cpus = 0;
    for (const RolePlan& role : plan.roles) {
      milli_cpus = std::max(milli_cpus, role.milli_cpus);
    }
    return (milli_cpus + 999) / 1000;
  }

  static int64_t MemoryPerCpu(const RenderPlan& plan) {
    int64_t bytes = 0;
    for (const RolePlan& role : plan.roles) {
      bytes = std::max(bytes, role.memory_limit);
    }
    return (bytes / Cpus(plan) + kMiB - 1) / kMiB;
  }

  static std::vector<std::string> Directives(const RenderPlan& plan) {
    std::vector<std::string> lines = {
        absl::StrCat("--job-name=", plan.name),
        absl::StrCat("--ntasks=", plan.task_count()),
        absl::StrCat("--cpus-per-task=", Cpus(plan)),
        absl::StrCat("--mem-per-cpu=", MemoryPerCpu(plan), "M"),
        "--requeue",
        "--open-mode=append",
        absl::StrCat("--signal=TERM@",
                     plan.options.grace_seconds + kSignalExtraSeconds)};
    if (plan.options.gpus > 0) {
      lines.push_back(absl::StrCat("--gpus=", plan.options.worker_count));
    }
    if (!plan.options.queue.empty()) {
      lines.push_back(absl::StrCat("--partition=", plan.options.queue));
    }
    return lines;
  }

  static std::vector<std::string> Head(const RenderPlan& plan) {
    std::vector<std::string> lines = {
        "", absl::StrCat("Weir job ", plan.name, " for Slurm: sbatch FILE"), "",
        "`weir` must be in PATH on every node. A job that was preempted, "
        "requeued or",
        "submitted again goes on from its newest checkpoint."};
    if (!plan.remarks.empty()) {
      lines.emplace_back("");
      AppendWrapped(plan.remarks, &lines);
    }
    return lines;
  }

  // The words of all roles together: the tasks of a step have one command.
  static std::string Command(const RenderPlan& plan) {
    RolePlan all = *plan.Find(TaskRole::kWorker);
    all.hosts_chief = true;  // takes the chief's flags, too
    std::vector<std::string> layout;
    for (const RolePlan& role : plan.roles) {
      layout.push_back(absl::StrCat(role.name(), "=", role.count));
    }
    std::vector<std::string> words =
        TaskWords(plan, all, plan.options.job_path, "\"$run\"");
    std::string text = absl::StrCat(
        "weir ", words[0], " --layout ", absl::StrJoin(layout, ","),
        " --port_base ",
        plan.options.port == 0 ? kPortOfJob : absl::StrCat(plan.options.port));
    bool program = false;  // the words of the user's program stay together
    for (size_t i = 1; i < words.size(); ++i) {
      // The shell fills in the one word that is not the user's.
      const bool own = words[i] == "--workdir=\"$run\"";
      absl::StrAppend(&text, program ? " " : " \\\n    ",
                      own && !program ? words[i] : ShellWord(words[i]));
      program |= words[i] == "--";
    }
    return text;
  }
};

}  // namespace

std::unique_ptr<Target> MakeSlurmTarget() {
  return std::make_unique<SlurmTarget>();
}

}  // namespace weir
