#include "sim/cluster.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/exit_code.h"
#include "common/io/files.h"
#include "common/threads/host_clocks.h"
#include "common/threads/scheduler.h"
#include "proto/checkpoint/checkpoint_files.h"
#include "proto/security/peer_identity.h"
#include "sim/script.h"

namespace weir::sim {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;
using Whom = HealthChecks::Whom;

constexpr int kKilled = 137;
constexpr int kTerminated = 143;
// Whoever looks after a container waits so long before it is started again.
constexpr auto kOperatorDelay = seconds(2);
// After DONE `weir task` ends its ps.
constexpr auto kDoneMax = seconds(30);
// So long after the last trouble of that kind all tasks speak with each other:
// the last checkpoint is of every ps.
constexpr auto kDeafMax = seconds(5);
// A process whose place another one has is killed so long after it can reach
// the others again.
constexpr auto kStrayMax = seconds(30);
// Of two chiefs one may wait so long for ps that the other has shut down.
constexpr auto kPsWait = seconds(180);

// Hosts run for up to so long, and their wall clocks are wrong by so much.
constexpr uint64_t kUpTimeMax = 10'000'000;
constexpr uint64_t kWallWrongMax = 100'000;

nanoseconds RandomSeconds(uint64_t below) {
  return seconds(static_cast<int64_t>(RandomBelow(below)));
}

PeerIdentity IdentityOf(const Task& task) {
  return {"sim", *ParsePeerRole(task.role), task.index};
}

}  // namespace

Cluster::Cluster(const JobPlan& plan, const std::string& data_dir,
                 WorldResult* result)
    : plan_(plan),
      result_(result),
      place_(plan.disk ? static_cast<Place*>(&disk_) : &objects_),
      store_(plan.disk ? static_cast<ObjectStore*>(&disk_) : &objects_),
      job_(MakePlace(plan, data_dir)),
      checkpoints_(place_, store_, plan.run_place(), job_.spec_text),
      health_(plan_) {
  job_.network = &network_;
  job_.objects = store_;
  job_.counts = &result->counts;
  if (job_.script.has_value()) {
    job_.script->on_pushes = std::bind_front(&HealthChecks::OnPushes, &health_);
  }
  place_->SetOnWrite(std::bind_front(&Cluster::OnEvent, this, Fault::kWrite));
  network_.SetFaults(plan_.network);
  network_.SetWatch(
      {std::bind_front(&Cluster::CheckRestore, this),
       std::bind_front(&HealthChecks::OnProgress, &health_),
       [this](int process, const Command& command) {
         OnEvent(Fault::kCommand);
         Check(health_.OnCommand(process, command, checkpoints_.newest()));
       },
       [this](int process, const Grant& grant) {
         Check(health_.OnGrant(process, grant));
       },
       std::bind_front(&HealthChecks::OnPush, &health_)});
  for (int s = 0; s < plan_.ps; ++s) {
    job_.ps_addresses.push_back(absl::StrCat("ps", s, ":1"));
    AddTask("ps", s);
  }
  AddTask("chief", 0);
  for (int w = 0; w < plan_.workers; ++w) {
    AddTask("worker", w);
  }
  if (plan_.evaluator) {
    AddTask("evaluator", 0);
  }
  network_.Join();
}

void Cluster::OnEvent(Fault::Event event) {
  ++events_[event];
  Wake(&event_, event_.size());
}

void Cluster::Break(const std::string& what) {
  if (!broken()) {
    result_->broken = what;
    Note(what);
  }
}

void Cluster::Check(const absl::Status& status) {
  if (!status.ok()) {
    Break(std::string(status.message()));
  }
}

void Cluster::AddTask(const char* role, int index) {
  auto task = std::make_unique<Task>();
  task->role = role;
  task->index = index;
  task->is_script = plan_.script && task->role == "worker";
  task->name = absl::StrCat(role, "/", index);
  tasks_.push_back(std::move(task));
  tasks_.back()->StartWeirTask();
}

void Cluster::Supervise(bool troubles_are_over) {
  if (!checkpoints_.Done()) {
    done_at_.reset();  // a chief of scripts may go on
  } else if (!done_at_.has_value()) {
    done_at_ = Now();
  }
  if (troubles_are_over && !over_at_.has_value()) {
    over_at_ = Now();
  }
  for (const auto& task : tasks_) {
    SuperviseTask(task.get());
  }
  together_ = together_ &&
              !std::all_of(tasks_.begin(), tasks_.end(), [](const auto& task) {
                return task->ended.has_value();
              });
  if (together_) {
    Deafen(Now());
    health_.Trouble(Now(), HealthChecks::Whom::kLeaving);
  }
  EndStrays();
  network_.BreakSilent();
}

void Cluster::SuperviseTask(Task* task) {
  if (task->back_at.has_value() && Now() >= *task->back_at) {
    task->back_at.reset();
    task->supervisor->OnExit(0, kKilled, Now().count());
  }
  if (task->run != nullptr && task->run->exit_code.has_value()) {
    const auto run = std::exchange(task->run, nullptr);
    EndProcess(run->process);  // what it left running ends, too
    CheckExit(*task, *run);
    task->supervisor->OnExit(0, *run->exit_code, Now().count());
    if (task->role == "chief") {
      Check(health_.OnStopped(checkpoints_.contributions()));
    }
  }
  if ((task->role == "ps" || task->is_script) && task->run != nullptr &&
      WasDone(*task)) {
    Kill(std::exchange(task->run, nullptr)->process);
    task->ended = kExitOk;
  }
  EndInterrupted(task);
  if (task->ended.has_value()) {
    if (!task->ended_for_good() && Now() >= task->again_at && !together_) {
      task->StartWeirTask();
    }
    return;
  }
  for ([[maybe_unused]] const int one :
       task->supervisor->TakeStarts(Now().count())) {
    StartProcess(task);
  }
  if (task->supervisor->finished()) {
    const int code = task->supervisor->exit_code();
    // By the user, see AskUser. Not an evaluator once the job is done: it would
    // find the same.
    const bool again = code == kExitDataLoss && checkpoints_.rotten() > 0 &&
                       !(task->role == "evaluator" && checkpoints_.Done());
    task->ended = again ? kKilled : code;
    task->again_at = std::max(Now() + kOperatorDelay, task->away_until);
  }
}

void Cluster::EndInterrupted(Task* task) {
  if (task->run == nullptr) {
    return;
  }
  for ([[maybe_unused]] const int one : task->supervisor->TakeStops()) {
    Terminate(task);
  }
  if (task->supervisor->PressureOn(0, Now().count()) ==
      Supervisor::Pressure::kKill) {
    Note(absl::StrCat(task->name, " is killed after its grace"));
    Kill(std::exchange(task->run, nullptr)->process);
    task->supervisor->OnExit(0, kKilled, Now().count());
    if (task->role == "chief") {
      Check(health_.OnStopped(checkpoints_.contributions()));
    }
  }
}

void Cluster::InterruptAll(nanoseconds away_until, bool together) {
  for (const auto& task : tasks_) {
    if (!task->ended.has_value()) {
      task->supervisor->OnInterrupt(Now().count(), kTerminated);
      task->away_until = away_until;
    }
  }
  together_ = together_ || together;
}

bool Cluster::AllAreTerminated() const {
  return std::all_of(tasks_.begin(), tasks_.end(), [](const auto& task) {
    return task->run == nullptr || task->run->terminated;
  });
}

void Cluster::CheckExit(const Task& task, const ProcessRun& run) {
  const int code = *run.exit_code;
  Note(absl::StrCat(task.name, " ended with ", code));
  if (code == kExitDataLoss && checkpoints_.rotten() > 0) {
    AskUser(task, run);
    return;
  }
  if (code != kExitOk && code != kExitReplaced && !IsTransientExit(code)) {
    Break(absl::StrCat(task.name, " ended for good with ", code, ": ",
                       run.words));
  }
  Check(checkpoints_.Look());
  if (code == kExitOk && !task.is_script &&
      checkpoints_.newest() < plan_.last_step()) {
    Break(absl::StrCat(task.name, " ended with 0 before the job was done"));
  }
  Check(health_.OnEnd(run.process, code));
}

// A chief goes on from the newest checkpoint that was there when it started.
void Cluster::CheckRestore(int process, const std::string& checkpoint) {
  const auto id = ParseCheckpointName(checkpoint);
  // One that has rotted may have been set aside since.
  Check(checkpoints_.Look());
  const uint64_t newest =
      std::min(newest_at_start_[process],
               checkpoints_.rotten() > 0 ? checkpoints_.newest() : UINT64_MAX);
  if (!id.has_value() || id->step < newest) {
    Break(absl::StrCat("a chief restores ", checkpoint,
                       " and started when there was one of step ", newest));
    return;
  }
  health_.OnRestore(id->step * plan_.in_unit());
}

void Cluster::StartProcess(Task* task) {
  auto run = std::make_shared<ProcessRun>();
  run->process = ++processes_;
  run->started = Now();
  if (task->role == "ps" || task->role == "chief") {
    holder_started_ = Now();
  }
  run->allows_older = job_.allow_older;
  run->rotten = checkpoints_.rotten();
  task->run = run;
  health_.OnStart(run->process, task->name, checkpoints_.Done());
  newest_at_start_[run->process] = checkpoints_.newest();
  SetSlow(run->process, task->role == "worker" ? plan_.pace : nanoseconds(0));
  RunProcess(*task, run);
}

void Cluster::RunProcess(const Task& task,
                         const std::shared_ptr<ProcessRun>& run) {
  Note(absl::StrCat("start ", task.name, " as ", run->process));
  SetHostClocks(run->process, RandomSeconds(kUpTimeMax),
                RandomSeconds(kWallWrongMax));
  StartAs(run->process, [this, &task, run] {
    network_.Join(IdentityOf(task));
    absl::Status status;
    if (task.role == "ps") {
      status = RunPs(job_, task.index, run.get());
    } else if (task.role == "chief") {
      status = RunChief(job_, run.get());
    } else if (task.role == "evaluator") {
      status = RunEvaluator(job_, run.get());
    } else if (task.is_script) {
      status = RunScript(job_, task.index, run.get());
    } else {
      status = RunWorker(job_, task.index, run.get());
    }
    run->words = status.ToString();
    Note(absl::StrCat(task.name, ": ", run->words));
    run->exit_code = ExitCodeFor(status);
    OnEvent(Fault::kEnd);
  });
}

void Cluster::Kill(int process) {
  network_.KillProcess(process);
  place_->OnProcessGone(process);
  health_.OnKilled(process);
}

void Cluster::EndProcess(int process) {
  network_.EndProcess(process);
  place_->OnProcessGone(process);
}

void Cluster::KillUntil(Task* task, nanoseconds back_at) {
  Kill(std::exchange(task->run, nullptr)->process);
  task->back_at = back_at;
}

void Cluster::Terminate(Task* task) {
  ++result_->counts.stops;
  task->run->terminated = true;
  health_.OnTerm(task->run->process);
  if (task->run->on_term) {
    StartAs(task->run->process, [run = task->run] {
      if (run->on_term) {  // it has not ended meanwhile
        run->on_term();
      }
    });
  }
}

void Cluster::StartSecond(Task* task, nanoseconds alone) {
  const nanoseconds until = Now() + alone + kStrayMax;
  if (task->role == "worker" || task->role == "evaluator") {
    health_.Trouble(until, Whom::kWorker);
  } else {
    health_.Trouble(until + kPsWait, Whom::kAll);
  }
  for (const auto& each : tasks_) {
    if (each->runs()) {
      network_.Part(task->run->process, each->run->process, alone,
                    /*one_way=*/false);
    }
  }
  strays_.push_back({task, task->run, Now() + alone + kStrayMax});
  StartProcess(task);
}

void Cluster::StartSecondInVain(Task* task) {
  auto run = std::make_shared<ProcessRun>();
  run->process = ++processes_;
  run->port_is_taken = true;
  strays_.push_back({task, run, Now() + kStrayMax});
  RunProcess(*task, run);
}

// Processes whose place another one has end by themselves, or whoever looks
// after their host ends them.
void Cluster::EndStrays() {
  std::erase_if(strays_, [this](const Stray& stray) {
    const ProcessRun& run = *stray.run;
    if (!run.exit_code.has_value() && Now() < stray.end) {
      return false;
    }
    if (!run.exit_code.has_value()) {
      Kill(run.process);
      return true;
    }
    EndProcess(run.process);
    if (!run.port_is_taken) {
      CheckExit(*stray.task, run);
    } else if (*run.exit_code != kExitUsage) {
      Break(absl::StrCat(stray.task->name,
                         " was started where its port is taken, and ended "
                         "with ",
                         *run.exit_code, ": ", run.words));
    }
    return true;
  });
}

void Cluster::LosePower(nanoseconds back_at) {
  health_.Trouble(back_at, Whom::kAll);
  Check(checkpoints_.Look());
  bool any_ended_well = false;
  for (const auto& task : tasks_) {
    any_ended_well =
        any_ended_well || (task->ended == kExitOk && !task->is_script);
    if (task->run != nullptr) {
      Kill(std::exchange(task->run, nullptr)->process);
    }
    task->back_at.reset();
    task->ended = kKilled;
    task->again_at = back_at;
  }
  for (const Stray& stray : strays_) {
    Kill(stray.run->process);
  }
  strays_.clear();
  done_at_.reset();
  place_->LosePower();
  checkpoints_.OnPowerLost();
  Check(checkpoints_.Look());
  if (any_ended_well && !checkpoints_.Done()) {
    Break("a task had ended with 0, and a loss of power has undone the job");
  }
}

void Cluster::Rot() {
  Check(checkpoints_.Look());
  if (checkpoints_.newest() >= plan_.last_step()) {
    return;  // nobody would go on with a job that is done
  }
  const std::string file = checkpoints_.Rot();
  if (!file.empty()) {
    ++result_->counts.rot;
    Note(absl::StrCat("a bit changes in ", file));
    health_.Trouble(Now(), Whom::kAll);
  }
}

// The message says what to do about a damaged checkpoint: --allow_older. With
// that it comes only where there is none to go back to.
void Cluster::AskUser(const Task& task, const ProcessRun& run) {
  health_.Trouble(Now(), Whom::kAll);
  Check(health_.OnEnd(run.process, kKilled));
  if (task.role != "chief") {
    return;
  }
  if (run.allows_older && run.rotten == checkpoints_.rotten()) {
    Check(checkpoints_.CheckNoneIsWhole());
    Note("the job is lost");
    result_->lost = true;
  }
  job_.allow_older = true;
}

bool Cluster::AllEnded() const {
  return result_->lost ||
         std::all_of(tasks_.begin(), tasks_.end(),
                     [](const auto& task) { return task->ended_for_good(); });
}

// As `weir task` looks for DONE, for a ps that could not hear its chief. Where
// all could hear each other at the end of the job it has to hear it. Nobody
// tells a script; nor the ps of scripts, which a chief that starts may need,
// before all scripts are back, which may go on with the job.
bool Cluster::WasDone(const Task& task) const {
  if (!done_at_.has_value() || !over_at_.has_value() ||
      (!plan_.script && *done_at_ > deaf_until_ + kDeafMax)) {
    return false;
  }
  nanoseconds since =
      std::max({*done_at_, *over_at_, task.run->started, holder_started_});
  for (const auto& other : tasks_) {
    if (other->is_script && !other->ended_for_good()) {
      if (!other->runs()) {
        return false;
      }
      since = std::max(since, other->run->started);
    }
  }
  const nanoseconds start =
      task.is_script ? nanoseconds(0) : plan_.start_time();
  return Now() - since > kDoneMax + start;
}

std::vector<float> Cluster::CheckEnd() {
  if (result_->lost) {
    return {};
  }
  if (plan_.evaluator && !checkpoints_.newest_is_rotten() &&
      !checkpoints_.NewestIsEvaluated()) {
    Break("the evaluator has no line on the last checkpoint");
  }
  // What ended well is durable.
  LosePower(Now());
  if (!broken() && !checkpoints_.Done()) {
    Break("all tasks have ended, and the job is not done");
  }
  if (broken()) {
    return {};
  }
  auto values = checkpoints_.ReadLast(plan_.last_step());
  if (!values.ok()) {
    result_->lost = checkpoints_.IsOfRot(values.status());
    Check(result_->lost ? absl::OkStatus() : values.status());
    return {};
  }
  WorldCounts& counts = result_->counts;
  counts.contributions += checkpoints_.contributions();
  return *std::move(values);
}

}  // namespace weir::sim
