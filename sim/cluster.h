// The tasks of a simulated job, whoever starts them again, and what is seen of
// them from outside.
//
// Place: sim/job.h runs one by the seed's plan, with sim/troubles.h, and one
// without troubles beside it. What has to hold is in sim/health_checks.h and
// sim/checkpoint_checks.h.
//
// Threads: for fibres; one at a time in a world.
#ifndef SIM_CLUSTER_H_
#define SIM_CLUSTER_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/threads/scheduler.h"
#include "sim/checkpoint_checks.h"
#include "sim/health_checks.h"
#include "sim/job_plan.h"
#include "sim/network.h"
#include "sim/places/disk.h"
#include "sim/places/object_store.h"
#include "sim/tasks.h"
#include "sim/world.h"

namespace weir::sim {

class Cluster {
 public:
  using Tasks = std::vector<std::unique_ptr<Task>>;

  // The calling fibre joins the network. Borrows all of them.
  Cluster(const JobPlan& plan, const std::string& data_dir,
          WorldResult* result);

  // Starts what is due and looks at what has ended. To be called often.
  // `troubles_are_over`: no trouble is to come.
  void Supervise(bool troubles_are_over);
  // How often each has come to pass.
  using Events = std::array<uint64_t, Fault::kEvents>;
  const Events& events() const { return events_; }
  // Waits for the next one, but not longer than `most`.
  void WaitForEvent(std::chrono::nanoseconds most) {
    Wait(&event_, nullptr, most);
  }
  // A ps and the chief may not hear each other until then.
  void Deafen(std::chrono::nanoseconds until) {
    deaf_until_ = std::max(deaf_until_, until);
  }
  // Every task has ended, and nobody starts it again; or no checkpoint is left
  // that has not rotted.
  bool AllEnded() const;
  // Once they all have: the values of the last checkpoint, or nothing if
  // something is broken.
  std::vector<float> CheckEnd();

  // Something does not hold. The first one counts.
  void Break(const std::string& what);
  void Check(const absl::Status& status);
  bool broken() const { return !result_->broken.empty(); }

  // What troubles do to tasks. REQUIRES: `task` runs.
  // Kills it; `weir task` hears of it at `back_at`.
  void KillUntil(Task* task, std::chrono::nanoseconds back_at);
  // SIGTERM to its program.
  void Terminate(Task* task);
  // SIGTERM to every `weir task`, also of tasks that do not run. Each is
  // started again then; `together`: not before the last has ended.
  void InterruptAll(std::chrono::nanoseconds away_until, bool together);
  // All that run have had SIGTERM: another one would change nothing.
  bool AllAreTerminated() const;
  // Starts it once more. The process that is there stays, without a word from
  // the others at first.
  void StartSecond(Task* task, std::chrono::nanoseconds alone);
  // The same on a host whose port the first one has.
  void StartSecondInVain(Task* task);
  // A bit of a checkpoint changes, before the last one is there.
  void Rot();
  // All hosts lose their power, and have it back then.
  void LosePower(std::chrono::nanoseconds back_at);

  const Tasks& tasks() const { return tasks_; }
  Network& network() { return network_; }
  Place& place() { return *place_; }
  CheckpointChecks& checkpoints() { return checkpoints_; }
  HealthChecks& health() { return health_; }

 private:
  void OnEvent(Fault::Event event);
  void AddTask(const char* role, int index);
  void SuperviseTask(Task* task);
  // Does what `weir task` does after SIGTERM.
  void EndInterrupted(Task* task);
  void CheckExit(const Task& task, const ProcessRun& run);
  void CheckRestore(int process, const std::string& checkpoint);
  void StartProcess(Task* task);
  void RunProcess(const Task& task, const std::shared_ptr<ProcessRun>& run);
  void Kill(int process);
  void EndProcess(int process);
  // What a user does about a checkpoint that is damaged.
  void AskUser(const Task& task, const ProcessRun& run);
  void EndStrays();
  bool WasDone(const Task& task) const;

  const JobPlan plan_;
  WorldResult* const result_;
  Network network_;
  SimObjectStore objects_;
  SimDisk disk_;
  Place* const place_;        // one of the two
  ObjectStore* const store_;  // the same
  JobPlace job_;
  CheckpointChecks checkpoints_;
  HealthChecks health_;
  Tasks tasks_;
  std::vector<Stray> strays_;
  bool together_ = false;  // nobody is started again before all have ended
  std::chrono::nanoseconds holder_started_{
      0};  // a ps or a chief, the last time
  std::optional<std::chrono::nanoseconds> done_at_;
  std::optional<std::chrono::nanoseconds> over_at_;  // no fault is to come
  std::chrono::nanoseconds deaf_until_{std::chrono::hours(-1)};
  std::map<int, uint64_t> newest_at_start_;  // checkpoint's step, by process
  int processes_ = 0;
  Events events_{};
  WaitQueue event_;
};

}  // namespace weir::sim

#endif  // SIM_CLUSTER_H_
