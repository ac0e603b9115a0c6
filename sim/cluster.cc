#include "sim/cluster.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/exit_code.h"
#include "common/base/plant.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "sim/checkpoint_checks.h"
#include "sim/health_checks.h"
#include "sim/job_plan.h"
#include "sim/network.h"
#include "sim/object_store.h"
#include "sim/tasks.h"
#include "sim/timed_faults.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Whom = HealthChecks::Whom;

constexpr int kKilled = 137;
constexpr auto kPoll = milliseconds(50);
// All troubles and all waits for what is lost are far shorter.
constexpr auto kWorldMax = std::chrono::hours(4);
// Whoever looks after a container waits so long before it is started again.
constexpr auto kOperatorDelay = seconds(2);
// After DONE `weir task` ends its ps.
constexpr auto kDoneMax = seconds(30);
// With a quicker store a stop takes less than a ps waits for it.
constexpr auto kQuickStore = milliseconds(50);
// A process whose place another one has is killed so long after it can reach
// the others again.
constexpr auto kStrayMax = seconds(30);
// One of two chiefs may wait so long for ps that the other has shut down.
constexpr auto kPsWait = seconds(180);

class Cluster {
 public:
  Cluster(const JobPlan& plan, const std::string& data_dir, WorldResult* result)
      : plan_(plan),
        result_(result),
        place_(MakePlace(plan.SpecText(), data_dir)),
        faults_(&objects_, plan.store),
        checkpoints_(&objects_, kRunPlace, place_.spec_text),
        health_(plan_) {
    place_.worker_count = plan_.workers;
    place_.network = &network_;
    place_.objects = &objects_;
    place_.counts = &result->counts;
    network_.SetFaults(plan_.network);
    network_.SetWatch({std::bind_front(&Cluster::CheckRestore, this),
                       std::bind_front(&HealthChecks::OnProgress, &health_),
                       std::bind_front(&HealthChecks::OnCommand, &health_),
                       std::bind_front(&HealthChecks::OnPush, &health_)});
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
      if (std::exchange(unavailable_, objects_.unavailable()) !=
          objects_.unavailable()) {
        health_.Trouble(Now(), Whom::kAll);
      }
      Supervise();
      Check(checkpoints_.Look());
      Check(health_.CheckRate(Now() < faults_.slow_until()));
      MakeTrouble();
      SleepFor(kPoll);
    }
    const auto values =
        result_->broken.empty() ? CheckEnd() : std::vector<float>();
    result_->counts.messages += network_.arrived();
    result_->counts.resets += network_.resets();
    result_->counts.unavailable += objects_.unavailable();
    result_->counts.checkpoints += checkpoints_.seen();
    return values;
  }

 private:
  void Break(const std::string& what) {
    if (result_->broken.empty()) {
      result_->broken = what;
      Note(what);
    }
  }

  void Check(const absl::Status& status) {
    if (!status.ok()) {
      Break(std::string(status.message()));
    }
  }

  // ---------------------------------------------------------------- tasks

  void AddTask(const char* role, int index) {
    auto task = std::make_unique<Task>();
    task->role = role;
    task->index = index;
    task->name = absl::StrCat(role, "/", index);
    tasks_.push_back(std::move(task));
    tasks_.back()->StartWeirTask();
  }

  void Supervise() {
    for (const auto& task : tasks_) {
      if (task->back_at.has_value() && Now() >= *task->back_at) {
        task->back_at.reset();
        task->supervisor->OnExit(0, kKilled, Now().count());
      }
      if (task->run != nullptr && task->run->exit_code.has_value()) {
        const auto run = std::exchange(task->run, nullptr);
        network_.EndProcess(run->process);  // what it left running ends, too
        CheckExit(*task, *run);
        task->supervisor->OnExit(0, *run->exit_code, Now().count());
        if (task->role == "chief") {
          Check(health_.OnStopped(checkpoints_.contributions()));
        }
      }
      if (task->role == "ps" && task->run != nullptr && WasDone()) {
        Kill(std::exchange(task->run, nullptr)->process);
        task->ended = kExitOk;
      }
      if (task->ended.has_value()) {
        if (!task->ended_for_good() && Now() >= task->again_at) {
          task->StartWeirTask();
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
    Check(checkpoints_.Look());
    if (code == kExitOk && checkpoints_.newest() < plan_.last_step()) {
      Break(absl::StrCat(task.name, " ended with 0 before the job was done"));
    }
    Check(health_.OnEnd(run.process, code));
  }

  // A chief goes on from the newest checkpoint that was there when it started.
  void CheckRestore(int process, const std::string& checkpoint) {
    const auto id = ParseCheckpointName(checkpoint);
    const uint64_t newest = newest_at_start_[process];
    if (!id.has_value() || id->step < newest) {
      Break(absl::StrCat("a chief restores ", checkpoint,
                         " and started when there was one of step ", newest));
    }
  }

  void StartProcess(Task* task) {
    auto run = std::make_shared<ProcessRun>();
    run->process = ++processes_;
    task->run = run;
    health_.OnStart(run->process, task->name, checkpoints_.Done());
    newest_at_start_[run->process] = checkpoints_.newest();
    Note(absl::StrCat("start ", task->name, " as ", run->process));
    SetSlow(run->process, PaceOf(*task));
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
    EndTimed();
    EndStrays();
    if (faults_done_ == plan_.faults.size()) {
      Heal();
      return;
    }
    const Fault& fault = plan_.faults[faults_done_];
    if (!trouble_at_.has_value()) {
      // The end of a job is behind its last checkpoint but one.
      if (plan_.late &&
          checkpoints_.newest() + plan_.every_steps < plan_.last_step()) {
        return;
      }
      // A job that is done does nothing more.
      if (((fault.at_write && objects_.writes() == writes_) ||
           health_.Receipts() < fault.after_receipts) &&
          !checkpoints_.Done()) {
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

  Task* TaskOf(const Fault& fault) {
    const auto ps = static_cast<size_t>(plan_.ps);
    const std::array<size_t, 3> counts = {ps, 1, tasks_.size() - ps - 1};
    const std::array<size_t, 3> firsts = {0, ps, ps + 1};
    const size_t role = fault.role % counts.size();
    return tasks_[firsts[role] + fault.task % counts[role]].get();
  }

  std::chrono::nanoseconds PaceOf(const Task& task) const {
    return task.role == "worker" ? plan_.pace : std::chrono::nanoseconds(0);
  }

  static Whom WhomOf(const Task& task) {
    if (task.role == "ps") {
      return Whom::kAll;
    }
    return task.role == "chief" ? Whom::kChief : Whom::kWorker;
  }

  void Commit(const Fault& fault) {
    if (CommitToAll(fault)) {
      return;
    }
    WorldCounts& counts = result_->counts;
    Task* const task = TaskOf(fault);
    if (!task->runs()) {
      return;
    }
    Note(absl::StrCat(KindName(fault.kind), ": ", task->name));
    const auto end = Now() + fault.time;
    const Whom whom = WhomOf(*task);
    switch (fault.kind) {
      case Fault::kTerm:
        if (task->role == "chief") {
          BeginStop();
        } else {
          health_.Trouble(Now(), whom);
        }
        Terminate(task);
        return;
      case Fault::kKill:
        ++counts.kills;
        health_.Trouble(end, whom);
        Kill(task->run->process);
        task->run = nullptr;
        task->back_at = end;
        return;
      case Fault::kPart: {
        const Task& other = *tasks_[fault.other % tasks_.size()];
        if (other.runs()) {
          ++counts.parts;
          health_.Trouble(end, Whom::kAll);
          network_.Part(task->run->process, other.run->process, fault.time);
        }
        return;
      }
      case Fault::kPause:
        ++counts.pauses;
        health_.Trouble(end, whom);
        faults_.PauseUntil(task->run->process, end);
        return;
      case Fault::kSlow:
        ++counts.slow;
        health_.Trouble(end, whom);
        faults_.SlowUntil(task->run->process, end, fault.wait, PaceOf(*task));
        return;
      case Fault::kSecond:
        ++counts.seconds;
        StartSecond(task, fault.time);
        return;
      default:
        return;
    }
  }

  // Whether it is a fault that hits no single task.
  bool CommitToAll(const Fault& fault) {
    const auto end = Now() + fault.time;
    switch (fault.kind) {
      case Fault::kWall:
        ++result_->counts.wall_steps;
        StepWall(fault.wall);
        if (Planted("clock.wall_waits")) {
          MoveWaits(fault.wall);
        }
        break;
      case Fault::kFull:
        ++result_->counts.store;
        faults_.FullUntil(end);
        break;
      case Fault::kHang:
        ++result_->counts.store;
        faults_.HangUntil(end, fault.wait);
        break;
      case Fault::kTermAll:
        BeginStop();
        for (const auto& each : tasks_) {
          Terminate(each.get());
        }
        break;
      default:
        return false;
    }
    Note(KindName(fault.kind));
    return true;
  }

  // The process that is there stays, without a word from the others at first.
  void StartSecond(Task* task, std::chrono::nanoseconds alone) {
    health_.Trouble(Now() + alone + kPsWait, Whom::kAll);
    for (const auto& each : tasks_) {
      if (each->runs()) {
        network_.Part(task->run->process, each->run->process, alone);
      }
    }
    strays_.push_back({task, task->run, Now() + alone + kStrayMax});
    StartProcess(task);
  }

  void Kill(int process) {
    network_.KillProcess(process);
    health_.OnKilled(process);
  }

  // The chief is told to end.
  void BeginStop() {
    const bool all_run =
        std::all_of(tasks_.begin(), tasks_.end(), [](const auto& task) {
          return task->role == "worker" || task->runs();
        });
    if (all_run && Now() >= faults_.slow_until() &&
        plan_.store.delay_max <= kQuickStore) {
      health_.OnStop();
    } else {
      health_.Trouble(Now(), Whom::kAll);
    }
  }

  void Terminate(Task* task) {
    if (task->runs() && task->run->on_term) {
      ++result_->counts.stops;
      StartAs(task->run->process, [run = task->run] {
        if (run->on_term) {  // it has not ended meanwhile
          run->on_term();
        }
      });
    }
  }

  void EndTimed() {
    faults_.Tick();
    // A start with other troubles may have to read longer than others wait.
    const auto until = std::max(faults_.slow_until(), faults_.full_until());
    if (Now() < until && !health_.AllWorkInPeace()) {
      health_.Trouble(until, Whom::kAll);
    }
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
        Kill(stray.run->process);
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
      faults_.Heal();
    }
  }

  // --------------------------------------------------------------- oracles

  bool AllEnded() const {
    return std::all_of(tasks_.begin(), tasks_.end(),
                       [](const auto& task) { return task->ended_for_good(); });
  }

  // As `weir task` looks for DONE, for a ps that could not hear its chief: one
  // that was halted or parted, or whose chief was told to end. One that was
  // killed has to hear it.
  bool WasDone() {
    if (plan_.OnlyKills() || faults_done_ < plan_.faults.size() ||
        !checkpoints_.Done()) {
      return false;
    }
    done_at_ = done_at_.value_or(Now());
    return Now() - *done_at_ > kDoneMax;
  }

  std::vector<float> CheckEnd() {
    if (!checkpoints_.Done()) {
      Break("all tasks have ended, and the job is not done");
      return {};
    }
    auto values = checkpoints_.ReadLast(plan_.last_step());
    if (!values.ok()) {
      Check(values.status());
      return {};
    }
    result_->counts.contributions += checkpoints_.contributions();
    return *std::move(values);
  }

  const JobPlan plan_;
  WorldResult* const result_;
  Network network_;
  SimObjectStore objects_;
  JobPlace place_;
  TimedFaults faults_;
  CheckpointChecks checkpoints_;
  HealthChecks health_;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::vector<Stray> strays_;
  size_t faults_done_ = 0;
  std::optional<std::chrono::nanoseconds> trouble_at_;  // the next one
  uint64_t writes_ = 0;  // of the store, at the fault before
  bool healed_ = false;
  std::optional<std::chrono::nanoseconds> done_at_;  // and no fault to come
  uint64_t unavailable_ = 0;                         // calls of it, so far
  std::map<int, uint64_t> newest_at_start_;  // checkpoint's step, by process
  int processes_ = 0;
};

}  // namespace

std::vector<float> RunCluster(uint64_t seed, const JobPlan& plan,
                              const std::string& data_dir,
                              WorldResult* result) {
  std::vector<float> values;
  result->outcome = RunWorld(seed, [&] {
    // Not destroyed: fibres that never end look at it until the world does.
    auto* const cluster = new Cluster(plan, data_dir, result);
    values = cluster->Run();
  });
  if (result->broken.empty()) {
    result->broken = result->outcome.stuck;
  }
  return values;
}

}  // namespace weir::sim
