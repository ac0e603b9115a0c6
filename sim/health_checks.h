// Whether the tasks of a simulated job end, and get on, as what happens to them
// allows.
//
// Terms
//   trouble   a fault that may cost a task its life: of a process, a host or
//             the store. Messages that are late or break their connections,
//             steps of the wall clock and a store that is slow are none: a job
//             has to bear them.
//   quiet     no trouble, and no task that ended by one, for a while.
//
// Invariants
//   I1. Only trouble ends a task with a code for another try.
//   I2. A worker's process ends with "replaced" only where another one of its
//       task was started beside it; of two, one stays. Of two chiefs that start
//       at one time each may find some of the shards with the other.
//   I3. Whoever starts when the job is done ends well, or by trouble; but not
//       of scripts, which may go on with it.
//   I4. In quiet a worker that has work does some of it; while the chief is
//       away, in async and with bounded staleness. In async it does so too
//       while another worker is slow or lost, and is not held again at once
//       after a long hold that led to no checkpoint.
//   I5. A chief that is told to end, in quiet, leaves a checkpoint with all
//       that workers had receipts for.
//   I6. No process is granted another generation of a slot that it has had:
//       whoever was replaced stays so. But another worker may have been asked
//       to finish something in its slot.
// Threads: for fibres.
// Errors: the words of what does not hold.
#ifndef SIM_HEALTH_CHECKS_H_
#define SIM_HEALTH_CHECKS_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "proto/chief.pb.h"
#include "sim/job_plan.h"

namespace weir::sim {

class HealthChecks {
 public:
  explicit HealthChecks(const JobPlan& plan) : plan_(plan) {}

  // Whom trouble touches.
  enum class Whom {
    kAll,
    kWorker,       // one, which is lost or slow
    kChief,        // it is away
    kSilentChief,  // for its workers it is away only after a while
    kUnheard,      // a worker and its chief do not hear each other
    kLeaving,      // all, which were told to end before
    kEvaluator,    // the chief waits for it, at the end alone
  };
  // There is trouble from now until then.
  void Trouble(std::chrono::nanoseconds until, Whom whom);

  void OnStart(int process, const std::string& task, bool done);
  void OnProgress(int process, const Progress& progress);
  // Of scripts: what the program of a rank knows to be taken.
  void OnPushes(int rank, uint64_t pushes) {
    of_slot_[static_cast<uint32_t>(rank)] = pushes;
  }
  // The shards hold so many contributions now, and slots count from 0 again.
  void OnRestore(uint64_t contributions) { restored_ = contributions; }
  // A worker pushes a block of this contribution of its slot.
  void OnPush(int process, uint64_t sequence);
  // I6. Its chief has granted it a slot.
  absl::Status OnGrant(int process, const Grant& grant);
  // I4. It reads a command of its chief. `newest`: the step of the newest
  // checkpoint.
  absl::Status OnCommand(int process, const Command& command, uint64_t newest);
  // I1, I2, I3. `code` of a process that has ended by itself.
  absl::Status OnEnd(int process, int code);
  // It hears of everything late until then.
  void OnSlow(int process, std::chrono::nanoseconds until) {
    processes_[process].slow_until = until;
  }
  // It gets SIGTERM.
  void OnTerm(int process) { processes_[process].leaving = true; }
  void OnKilled(int process) { Forget(process); }
  // All ps and the chief are there, since then all workers have begun a
  // contribution and told the chief of its receipts, and nobody is about to
  // end.
  bool AllAreAtWork() const;
  // They are, and trouble is over for a while.
  bool InQuiet() const;
  // I4. To be called often. `store_is_slow`: workers may have to wait for a
  // checkpoint that is begun.
  absl::Status CheckRate(bool store_is_slow);

  // Contributions that workers had receipts for, as they told the chief.
  uint64_t Receipts() const;
  // I5: the chief is told to end now; its trouble lasts until then.
  // `everybody`: no worker stays that could finish what another one has left.
  void OnStop(std::chrono::nanoseconds until, bool everybody);
  // It has ended. `saved`: contributions of the newest checkpoint.
  absl::Status OnStopped(uint64_t saved);

 private:
  struct Worker {
    uint32_t slot = 0;
    bool out_of_work = false;
    // Since then it is looked at.
    std::chrono::nanoseconds since{0};
    std::chrono::nanoseconds pushed{0};
    uint64_t next = 0;  // contribution of its slot
    // When those began that have no receipts yet, and the last one that has.
    std::map<uint64_t, std::chrono::nanoseconds> begun;
    std::chrono::nanoseconds taken{0};
    bool may_be_finished = false;
    // The last time that it was held. An end before the beginning: it still is.
    std::chrono::nanoseconds hold_begin{0};
    std::chrono::nanoseconds hold_end{0};
    uint64_t newest_at_hold = 0;
  };

  // Trouble that is none of its own, but comes of another one.
  void Affect(std::chrono::nanoseconds until, Whom whom);
  absl::Status CheckWorker(const Worker& worker) const;
  absl::Status CheckIdle(const Worker& worker, std::chrono::nanoseconds since,
                         std::chrono::nanoseconds most) const;
  // It has pushed all that it has, or is about to.
  bool MayBeFinished(const Worker& worker) const;
  // No chief was there for as long as it takes to give a ps its values again.
  bool PsMayBeEmpty() const;
  // Somebody is told to end: a stop may hold the workers.
  bool AnyLeaves() const;
  // Of several workers none was told to end.
  bool AllWorkersStay() const;
  uint64_t StepsOfScripts() const;

  struct Process {
    std::string task;
    std::chrono::nanoseconds started{0};
    bool started_when_done = false;
    bool leaving = false;
    std::chrono::nanoseconds slow_until{0};
  };
  Process Forget(int process);

  const JobPlan& plan_;
  // Of any kind, of a worker, of the chief, of all.
  std::chrono::nanoseconds trouble_until_{std::chrono::hours(-1)};
  std::chrono::nanoseconds worker_trouble_until_{std::chrono::hours(-1)};
  std::chrono::nanoseconds chief_trouble_until_{std::chrono::hours(-1)};
  std::chrono::nanoseconds hard_trouble_until_{std::chrono::hours(-1)};
  std::chrono::nanoseconds chief_ran_{0};       // the last time
  std::chrono::nanoseconds store_was_slow_{0};  // the last time
  std::chrono::nanoseconds holder_gone_{0};     // a ps or a chief
  std::chrono::nanoseconds ps_gone_{std::chrono::hours(-1)};
  // That a worker was, or had no work.
  std::chrono::nanoseconds one_was_away_{0};
  std::map<int, Process> processes_;
  std::map<std::string, int> may_be_replaced_;  // processes of a task
  std::map<int, Worker> workers_;               // by process
  std::map<uint32_t, uint64_t> of_slot_;        // contributions with receipts
  struct Granted {
    uint64_t history;
    uint32_t slot;
    uint32_t generation;
  };
  std::map<int, Granted> granted_;  // by process: the last one
  std::set<uint32_t> offered_;      // slots, to others
  std::optional<uint64_t> to_save_;
  bool stop_under_way_ = false;  // until the chief's process ends
  uint64_t restored_ = 0;
};

}  // namespace weir::sim

#endif  // SIM_HEALTH_CHECKS_H_
