// The troubles of a simulated job, as its plan has them: when they come, and
// to whom.
//
// Threads: for fibres.
#ifndef SIM_TROUBLES_H_
#define SIM_TROUBLES_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>

#include "sim/cluster.h"
#include "sim/job_plan.h"
#include "sim/timed_faults.h"
#include "sim/world.h"

namespace weir::sim {

class Troubles {
 public:
  // Borrows all of them.
  Troubles(const JobPlan& plan, Cluster* cluster, WorldCounts* counts)
      : plan_(plan),
        cluster_(*cluster),
        counts_(*counts),
        timed_(&cluster->place(), plan.store) {}

  // Begins and ends what is due. To be called often.
  void Make();
  // Until Make has something to do at the latest, if no event comes.
  std::chrono::nanoseconds Pause() const;
  // All of them have begun.
  bool over() const { return done_ == plan_.faults.size(); }
  // Calls of the store may take longer than the plan says.
  bool store_is_slow() const { return Now() < timed_.slow_until(); }

 private:
  // Whether the next one may begin, as far as the job has come.
  bool MayBegin(const Fault& fault);
  bool WaitsFor(Fault::Event event) const;
  void Begin(const Fault& fault);
  void SetWallClock(std::chrono::nanoseconds by);
  bool BeginForAll(const Fault& fault);
  void BeginFor(Task* task, const Fault& fault);
  Task* TaskOf(const Fault& fault) const;
  const Task& PeerOf(const Task& task, size_t number) const;
  // Whether a ps and the chief may not hear each other because of it.
  bool PartsPsAndChief(const Fault& fault) const;
  // The chief is told to end, and is back then; `everybody` is.
  void BeginStop(std::chrono::nanoseconds until, bool everybody);
  void EndTimed();
  void Heal();

  const JobPlan& plan_;
  Cluster& cluster_;
  WorldCounts& counts_;
  TimedFaults timed_;
  size_t done_ = 0;
  std::optional<std::chrono::nanoseconds> next_at_;
  std::array<uint64_t, Fault::kEvents> seen_{};  // events, at the one before
  uint64_t unavailable_ = 0;                     // calls of it, so far
  bool healed_ = false;
};

}  // namespace weir::sim

#endif  // SIM_TROUBLES_H_
