#include "sim/job.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "common/io/files.h"
#include "deploy/launcher/supervisor.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/job/job_spec_defaults.h"
#include "proto/job/job_spec_text.h"
#include "sim/job_plan.h"
#include "sim/network.h"
#include "sim/object_store.h"
#include "sim/tasks.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kKilled = 137;
constexpr auto kPoll = milliseconds(50);
// In the world's time: all troubles, and all waits of a job for what is lost,
// are far shorter.
constexpr auto kWorldMax = std::chrono::hours(4);
// Whoever looks after a container waits so long before it is started again.
constexpr auto kOperatorDelay = seconds(2);
// After DONE `weir task` ends its ps.
constexpr auto kDoneMax = seconds(30);
// A process whose place another one has is killed so long after it can reach
// the others again.
constexpr auto kStrayMax = seconds(30);

// One task of the job and its `weir task`, which starts it again.
struct Task {
  std::string role;
  int index = 0;
  std::string name;
  std::unique_ptr<Supervisor> supervisor;
  std::shared_ptr<ProcessRun> run;       // null: none runs
  std::optional<int> ended;              // with which code `weir task` ended
  std::chrono::nanoseconds again_at{0};  // when it is started once more
};

// A process that is there still, though another one has its place.
struct Stray {
  Task* task = nullptr;
  std::shared_ptr<ProcessRun> run;
  std::chrono::nanoseconds end{0};  // then it is killed
};

class Job {
 public:
  Job(const JobPlan& plan, WorldResult* result) : plan_(plan), result_(result) {
    absl::StatusOr<JobSpec> spec = ParseJobSpec(plan_.SpecText(), "sim");
    if (!spec.ok()) {
      std::abort();
    }
    place_.spec = *std::move(spec);
    ResolveDefaults(&place_.spec);
    place_.spec_text = CanonicalJobSpecText(place_.spec);
    place_.worker_count = plan_.workers;
    place_.network = &network_;
    place_.objects = &objects_;
    place_.counts = &result->counts;
    network_.SetFaults(plan_.network);
    objects_.SetFaults(plan_.store);
    for (int s = 0; s < plan_.ps; ++s) {
      place_.ps_addresses.push_back(absl::StrCat("ps", s, ":1"));
      AddTask("ps", s);
    }
    AddTask("chief", 0);
    for (int w = 0; w < plan_.workers; ++w) {
      AddTask("worker", w);
    }
  }

  // Returns the values of the last checkpoint; empty if something is broken.
  std::vector<float> Run() {
    network_.Join();
    while (result_->broken.empty() && !AllEnded()) {
      if (Now() > kWorldMax) {
        Break("the job has not ended after four hours");
      }
      Supervise();
      CheckNewest();
      MakeTrouble();
      SleepFor(kPoll);
    }
    std::vector<float> values;
    if (result_->broken.empty()) {
      values = CheckEnd();
    }
    result_->counts.messages += network_.arrived();
    result_->counts.resets += network_.resets();
    result_->counts.unavailable += objects_.unavailable();
    return values;
  }

 private:
  void Break(const std::string& what) {
    if (result_->broken.empty()) {
      result_->broken = what;
      Note(what);
    }
  }

  // ---------------------------------------------------------------- tasks

  void AddTask(const char* role, int index) {
    auto task = std::make_unique<Task>();
    task->role = role;
    task->index = index;
    task->name = absl::StrCat(role, "/", index);
    tasks_.push_back(std::move(task));
    StartWeirTask(tasks_.back().get());
  }

  static void StartWeirTask(Task* task) {
    Supervisor::Options options;
    options.alone = true;
    options.healthy_after = seconds(60);
    LocalTask local;
    local.role = task->role;
    local.index = task->index;
    task->supervisor = std::make_unique<Supervisor>(
        options, std::vector<LocalTask>{std::move(local)});
    task->ended.reset();
  }

  void Supervise() {
    for (const auto& task : tasks_) {
      if (task->run != nullptr && task->run->exit_code.has_value()) {
        const auto run = std::exchange(task->run, nullptr);
        network_.EndProcess(run->process);  // what it left running ends, too
        CheckExit(*task, *run);
        task->supervisor->OnExit(0, *run->exit_code, Now().count());
      }
      if (task->role == "ps" && task->run != nullptr && WasDone()) {
        network_.KillProcess(std::exchange(task->run, nullptr)->process);
        task->ended = kExitOk;
      }
      if (task->ended.has_value()) {
        // As a pod of Kubernetes: started again after a code of 128 and more,
        // and after 5, which the files of `weir render` have it ignore.
        if (!EndedForGood(*task) && Now() >= task->again_at) {
          StartWeirTask(task.get());
        }
        continue;
      }
      for ([[maybe_unused]] const int one :
           task->supervisor->TakeStarts(Now().count())) {
        StartProcess(task.get());
      }
      if (task->supervisor->finished()) {
        task->ended = task->supervisor->exit_code();
        task->again_at = Now() + kOperatorDelay;
      }
    }
  }

  void CheckExit(const Task& task, const ProcessRun& run) {
    const int code = *run.exit_code;
    Note(absl::StrCat(task.name, " ended with ", code));
    if (code != kExitOk && code != kExitReplaced && !IsTransientExit(code)) {
      Break(absl::StrCat(task.name, " ended for good with ", code, ": ",
                         run.words));
    }
    // Not by DONE: of two chiefs the later one removes what the other has
    // written, saves the same values, and writes it again.
    CheckNewest();
    if (code == kExitOk && newest_ < plan_.last_step()) {
      Break(absl::StrCat(task.name, " ended with 0 before the job was done"));
    }
  }

  void StartProcess(Task* task) {
    auto run = std::make_shared<ProcessRun>();
    run->process = ++processes_;
    task->run = run;
    Note(absl::StrCat("start ", task->name, " as ", run->process));
    StartAs(run->process, [this, task, run] {
      network_.Join();
      absl::Status status;
      if (task->role == "ps") {
        status = RunPs(place_, task->index, run.get());
      } else if (task->role == "chief") {
        status = RunChief(place_, run.get());
      } else {
        status = RunWorker(place_, task->index, run.get());
      }
      run->words = status.ToString();
      Note(absl::StrCat(task->name, ": ", run->words));
      run->exit_code = ExitCodeFor(status);
    });
  }

  // -------------------------------------------------------------- trouble

  void MakeTrouble() {
    EndPauses();
    EndStrays();
    if (faults_done_ == plan_.faults.size()) {
      Heal();
      return;
    }
    const Fault& fault = plan_.faults[faults_done_];
    if (!trouble_at_.has_value()) {
      // The end of a job is behind its last checkpoint but one.
      if (plan_.late && newest_ + plan_.every_steps < plan_.last_step()) {
        return;
      }
      // A job that is done writes nothing more.
      if (fault.at_write && objects_.writes() == writes_ && !Done()) {
        return;
      }
      trouble_at_ = Now() + fault.after;
    }
    if (Now() < *trouble_at_) {
      return;
    }
    Commit(fault);
    ++faults_done_;
    trouble_at_.reset();
    writes_ = objects_.writes();
  }

  static bool Runs(const Task& task) {
    return task.run != nullptr && !task.run->exit_code.has_value();
  }

  void Commit(const Fault& fault) {
    WorldCounts& counts = result_->counts;
    if (fault.kind == Fault::kWall) {
      ++counts.wall_steps;
      StepWall(fault.wall);
      return;
    }
    if (fault.kind == Fault::kTermAll) {
      Note("SIGTERM to all");
      for (const auto& each : tasks_) {
        Terminate(each.get());
      }
      return;
    }
    Task* const task = tasks_[fault.task % tasks_.size()].get();
    if (!Runs(*task)) {
      return;
    }
    const int process = task->run->process;
    Note(absl::StrCat(KindName(fault.kind), ": ", task->name));
    if (fault.kind == Fault::kTerm) {
      Terminate(task);
    } else if (fault.kind == Fault::kKill) {
      ++counts.kills;
      network_.KillProcess(process);
      task->run = nullptr;
      task->supervisor->OnExit(0, kKilled, Now().count());
    } else if (fault.kind == Fault::kPart) {
      const Task& other = *tasks_[fault.other % tasks_.size()];
      if (Runs(other)) {
        ++counts.parts;
        network_.Part(process, other.run->process, fault.time);
      }
    } else if (fault.kind == Fault::kPause) {
      ++counts.pauses;
      Pause(process);
      paused_.emplace_back(process, Now() + fault.time);
    } else {
      ++counts.seconds;
      for (const auto& each : tasks_) {
        if (Runs(*each)) {
          network_.Part(process, each->run->process, fault.time);
        }
      }
      strays_.push_back({task, task->run, Now() + fault.time + kStrayMax});
      StartProcess(task);
    }
  }

  void Terminate(Task* task) {
    if (Runs(*task) && task->run->on_term) {
      ++result_->counts.stops;
      StartAs(task->run->process, task->run->on_term);
    }
  }

  void EndPauses() {
    std::erase_if(paused_, [](const auto& paused) {
      const bool over = Now() >= paused.second;
      if (over) {
        Continue(paused.first);
      }
      return over;
    });
  }

  // Processes whose place another one has end by themselves, or whoever looks
  // after their host ends them.
  void EndStrays() {
    std::erase_if(strays_, [this](const Stray& stray) {
      if (stray.run->exit_code.has_value()) {
        network_.EndProcess(stray.run->process);
        CheckExit(*stray.task, *stray.run);
        return true;
      }
      if (Now() >= stray.end) {
        network_.KillProcess(stray.run->process);
        return true;
      }
      return false;
    });
  }

  void Heal() {
    if (!std::exchange(healed_, true)) {
      Faults calm = plan_.network;
      calm.reset_one_in = 0;
      network_.SetFaults(calm);
      StoreFaults answers = plan_.store;
      answers.unavailable_one_in = 0;
      objects_.SetFaults(answers);
    }
  }

  // --------------------------------------------------------------- oracles

  static bool EndedForGood(const Task& task) {
    return task.ended.has_value() && !IsTransientExit(*task.ended) &&
           *task.ended != kExitReplaced;
  }

  bool AllEnded() const {
    return std::all_of(tasks_.begin(), tasks_.end(),
                       [](const auto& task) { return EndedForGood(*task); });
  }

  // As `weir task` looks for DONE, for a ps that could not hear its chief: one
  // that was halted or parted, or whose chief was told to end. One that was
  // killed has to hear it.
  bool WasDone() {
    if (plan_.OnlyKills() || faults_done_ < plan_.faults.size() || !Done()) {
      return false;
    }
    done_at_ = done_at_.value_or(Now());
    return Now() - *done_at_ > kDoneMax;
  }

  template <typename Look>
  auto FromOutside(Look look) {
    objects_.SetAtOnce(true);
    auto seen = look();
    objects_.SetAtOnce(false);
    return seen;
  }

  bool Done() {
    return FromOutside(
        [&] { return JobIsDone(&objects_, kRunPlace, place_.spec_text); });
  }

  void CheckNewest() {
    const auto list = FromOutside([&] {
      return ListCheckpoints(&objects_, JoinPath(kRunPlace, "checkpoints"));
    });
    if (!list.ok() || (list->empty() && newest_ > 0)) {
      Break(absl::StrCat("there were checkpoints up to step ", newest_, ": ",
                         list.status().ToString()));
    } else if (!list->empty()) {
      const uint64_t step = list->back().step;
      if (step < newest_) {
        Break(absl::StrCat("the newest checkpoint is of step ", step,
                           " and was of ", newest_));
      }
      result_->counts.checkpoints += step > newest_ ? 1 : 0;
      newest_ = step;
    }
  }

  std::vector<float> CheckEnd() {
    if (!Done()) {
      Break("all tasks have ended, and the job is not done");
      return {};
    }
    absl::StatusOr<std::vector<float>> values =
        FromOutside([&] { return ReadLast(); });
    if (!values.ok()) {
      Break(absl::StrCat("the last checkpoint: ", values.status().ToString()));
      return {};
    }
    return *std::move(values);
  }

  absl::StatusOr<std::vector<float>> ReadLast() {
    WEIR_ASSIGN_OR_RETURN(
        const std::string directory,
        ResolveCheckpoint(
            &objects_,
            absl::StrCat(kRunPlace, "/checkpoints/ckpt-", plan_.last_step())));
    WEIR_ASSIGN_OR_RETURN(const auto reader,
                          CheckpointReader::Open(&objects_, directory));
    WEIR_RETURN_IF_ERROR(reader->Verify());
    const Manifest& manifest = reader->manifest();
    if (manifest.applied_range_size() != 2 || manifest.applied_range(0) != 0 ||
        manifest.applied_range(1) != manifest.contribution_count() ||
        manifest.step() != plan_.last_step()) {
      return absl::DataLossError(
          absl::StrCat("contributions are missing at step ", manifest.step(),
                       ": ", absl::StrJoin(manifest.applied_range(), ", "),
                       " of ", manifest.contribution_count()));
    }
    result_->counts.contributions += manifest.contribution_count();
    std::vector<float> values(
        static_cast<size_t>(reader->layout().flat_elements()));
    WEIR_RETURN_IF_ERROR(reader->ReadFlat(
        kValuesArray, 0, static_cast<int64_t>(values.size()), values.data()));
    return values;
  }

  const JobPlan plan_;
  WorldResult* const result_;
  Network network_;
  SimObjectStore objects_;
  JobPlace place_;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::vector<Stray> strays_;
  // Processes that were stopped, and until when.
  std::vector<std::pair<int, std::chrono::nanoseconds>> paused_;
  size_t faults_done_ = 0;
  std::optional<std::chrono::nanoseconds> trouble_at_;  // the next one
  uint64_t writes_ = 0;  // of the store, at the fault before
  bool healed_ = false;
  std::optional<std::chrono::nanoseconds> done_at_;  // and no fault to come
  uint64_t newest_ = 0;  // step of the newest committed checkpoint
  int processes_ = 0;
};

std::vector<float> RunPlan(uint64_t seed, const JobPlan& plan,
                           WorldResult* result) {
  std::vector<float> values;
  result->outcome = RunWorld(seed, [&] {
    // Not destroyed: fibres that never end look at it until the world does.
    auto* const job = new Job(plan, result);
    values = job->Run();
  });
  if (result->broken.empty()) {
    result->broken = result->outcome.stuck;
  }
  return values;
}

}  // namespace

WorldResult RunJob(uint64_t seed) {
  WorldResult result;
  JobPlan plan;
  RunWorld(seed, [&plan] { plan = DrawJobPlan(); });
  result.job = plan.Words();
  const std::vector<float> values = RunPlan(seed, plan, &result);
  if (result.broken.empty() && plan.mode == Mode::kSync) {
    WorldResult alone;
    const std::vector<float> expected = RunPlan(seed, plan.Alone(), &alone);
    if (!alone.broken.empty()) {
      result.broken = absl::StrCat("the same job alone: ", alone.broken);
    } else if (values != expected) {
      result.broken = "the values are not those of the same job alone";
    }
  }
  return result;
}

}  // namespace weir::sim
